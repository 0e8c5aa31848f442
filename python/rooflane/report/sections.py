"""The tables of a report. Each is built once; __init__.py and html.py set them."""
from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rooflane.archive.tables import by, duration
from rooflane.report.run import Run, nanoseconds, per_cent, times
from rooflane.tuning import Exchange, History, Neighbour, Outcome, Trial, text_of

TOP = 5
LONGEST_REASON = 120
STABLE = 0.7


@dataclass
class Table:
    """A table with its notes."""
    name: str
    head: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    empty: str = ""  # what stands for no rows

    def without_empty_columns(self) -> Table:
        """Without those in which no row says anything."""
        kept = [at for at in range(len(self.head)) if any(row[at] for row in self.rows)]
        return self if not self.rows or len(kept) == len(self.head) else Table(
            self.name, [self.head[at] for at in kept],
            [[row[at] for at in kept] for row in self.rows], self.notes, self.empty)


def summary(run: Run) -> Table:
    """What was found, against what, and at what expense."""
    seed = "" if run.seed is None else f", seed {run.seed}"
    correct = sum(trial.correct for trial in run.trials)
    spent = {part: sum(getattr(trial.cost, part) for trial in run.trials)
             for part in ("propose", "build", "verify", "time")}
    rows = [["problem", run.space.title], ["machine", run.machine], ["program", run.program],
            ["strategy", run.strategy and run.strategy + seed],
            ["default", f"{text_of(run.space.default)}, {nanoseconds(run.default_ns)}"],
            ["chosen", text_of(run.chosen)
             + " (the default)" * (run.chosen == run.space.default)],
            ["speed-up over the default", times(run.ratio)], ["share of the roof", _of_roof(run)],
            ["verdict", _verdict(run)],
            ["serves", "this shape only: a neighbouring size was wrong or more than 10 % slower"
             if run.verdict and run.verdict.exact else ""],
            ["attempts", f"{len(run.trials)}; {correct} correct "
                         f"({per_cent(correct / len(run.trials))})" if run.trials else ""],
            ["time spent", duration(sum(spent.values())) + ": " + ", ".join(
                f"{name} {duration(seconds)}" for name, seconds in zip(
                    ("proposing", "building", "verifying", "timing"), spent.values()))]]
    return Table("Summary", ["", ""], [row for row in rows if row[1]])


def _of_roof(run: Run) -> str:
    if not (run.space.roof_ns and run.default_ns):
        return ""
    default = run.space.roof_ns / run.default_ns
    return f"default {per_cent(default)}" + (
        f", chosen {per_cent(default / run.ratio.value)}" if run.ratio else "")


def _verdict(run: Run) -> str:
    if not run.verdict:
        return ("none: the run ended before the best were measured again in fresh processes; the "
                "fastest of many measurements is partly luck")
    count = len(run.verdict.tie_set)
    return {"winner": "a winner: everything else is slower",
            "tie": f"a tie of {count}: the differences between them are within 2 %",
            "undecided": f"undecided between {count}; about {duration(run.verdict.seconds_more)} "
                         "more would decide"}[run.verdict.kind]


def tie_set(run: Run) -> Table:
    """Who tied, in fresh processes, or was not told apart."""
    finalists = run.verdict.tie_set if run.verdict and run.verdict.kind != "winner" else []
    rows = [[text_of(one.configuration), times(one.ratio), str(one.workspace_bytes),
             "chosen" if one.configuration == run.chosen else ""] for one in finalists]
    return Table("Tie set", ["configuration", "speed-up", "workspace (bytes)", ""], rows)


def convergence(run: Run) -> Table:
    """Each new best."""
    rows = [[str(trial.number), duration(elapsed), times(trial.ratio), by(trial),
             text_of(trial.configuration)] for trial, elapsed in run.bests()]
    return Table("Convergence", ["attempt", "after", "speed-up", "by", "configuration"], rows,
                 empty="No attempt was correct.")


def top(run: Run) -> Table:
    """The fastest of the search."""
    rows = [[str(trial.number), times(trial.ratio),
             nanoseconds(statistics.median(trial.ns) if trial.ns else None), by(trial),
             text_of(trial.configuration), trial.note]
            for trial in History(run.space, list(run.trials)).ranked()[:TOP]]
    return Table("Top five", ["attempt", "speed-up", "time", "by", "configuration", "note"], rows,
                 ["Measured by the search; the fastest of many are partly luck."],
                 "No attempt was correct.")


def impact(run: Run) -> Table:
    """What each tunable alone changes, from the best configuration: of trials that differ from it
    in this tunable only. What was tried, not what could be."""
    rows: list[tuple[float, list[str]]] = []
    best = run.best
    for name, value in best.configuration.items() if best else ():
        slower: dict[int, float] = {}
        failed: dict[int, str] = {}
        for trial in run.trials:
            other = trial.configuration.get(name)
            if other in (None, value) or trial.configuration != {**best.configuration, name: other}:
                continue
            if trial.correct:
                slower[other] = trial.ratio.value / best.ratio.value
            else:
                failed[other] = trial.outcome.value
        tried = [f"{other}: {ratio:.3f}×" for other, ratio in sorted(slower.items())]
        tried += [f"{other}: {outcome}" for other, outcome in failed.items() if other not in slower]
        most = max(slower.values(), default=0.0)
        meaning = next((one.meaning for one in run.space.tunables if one.name == name), "")
        rows.append((most, [name, str(value), f"{most:.3f}×" if slower else "",
                            ", ".join(tried) or "no other value was tried alone", meaning]))
    return Table("Impact, one at a time from the best",
                 ["tunable", "best", "most it costs", "value: time over the best's", "meaning"],
                 [row for _, row in sorted(rows, key=lambda one: -one[0])],
                 ["Relative to the fastest trial; all other tunables unchanged."],
                 "No attempt was correct.")


def stability(sizes: Sequence[Neighbour]) -> str:
    """How alike the speed-ups of one configuration over sizes are, in a sentence."""
    right = [1 / size.ratio.value for size in sizes
             if size.outcome is Outcome.CORRECT and size.ratio is not None]
    if not right:
        return "No size is correct: not stable."
    score = 1 - statistics.pstdev(right) / statistics.fmean(right)
    whole = len(right) == len(sizes)
    return (f"{'Stable' if score > STABLE and whole else 'Not stable'}: score {score:.3f} = 1 − "
            f"standard deviation / mean of the speed-ups (stable: above {STABLE:g} and all "
            f"correct); they range from {min(right):.3f}× to {max(right):.3f}×"
            + ("." if whole else "; not all sizes are correct."))


def sizes(run: Run) -> Table:
    """The chosen configuration at its own size and at the neighbours'."""
    found = [Neighbour(run.space.shape, Outcome.CORRECT, ratio=run.verdict.ratio),
             *run.verdict.neighbours] if run.verdict and run.verdict.neighbours else []
    rows = [[size.shape, size.cache, size.outcome.value, times(size.ratio), size.reason]
            for size in found]
    return Table("Stability across sizes",
                 ["size", "caches", "outcome", "speed-up over its own default", "reason"], rows,
                 [stability(found)], "Not tried at other sizes.")


def failed(run: Run) -> Table:
    """Failures by outcome and reason, the most frequent first."""
    wrong = [trial for trial in run.trials if not trial.correct]
    first = {(trial.outcome.value, trial.reason): trial for trial in reversed(wrong)}
    counts = Counter((trial.outcome.value, trial.reason) for trial in wrong)
    rows = [[str(count), key[0], shortened(key[1]), str(first[key].number),
             text_of(first[key].configuration)] for key, count in counts.most_common()]
    return Table("Failures", ["attempts", "outcome", "reason", "first", "its configuration"], rows,
                 empty="None: all attempts were correct.")


def shortened(text: str) -> str:
    """One line that fits."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_REASON else line[:LONGEST_REASON - 1] + "…"


def model(run: Run) -> list[Table]:
    """What a language model was asked, proposed, and what came of it; nothing where none was."""
    if not run.exchanges:
        return []
    asked = run.exchanges
    by_number = {trial.number: trial for trial in run.trials}
    came = [by_number[number] for exchange in asked for number in exchange.trials
            if number in by_number]
    outcomes = Counter(trial.outcome.value for trial in came).most_common()
    new = {trial.number for trial, _ in run.bests()} & {trial.number for trial in came}
    failures = Counter(exchange.failure for exchange in asked if exchange.failure)
    best = max(came, key=lambda trial: trial.speed_up, default=None)
    rows = [["models", ", ".join(sorted({exchange.model for exchange in asked}))],
            ["requests", f"{len(asked)}; {len(asked) - failures.total()} of use"],
            ["time", duration(sum(exchange.seconds for exchange in asked))],
            ["tokens", f"{sum(exchange.tokens_in for exchange in asked)} in, "
                       f"{sum(exchange.tokens_out for exchange in asked)} out"],
            ["resulting attempts", ", ".join(
                [str(len(came)), *(f"{count} {name}" for name, count in outcomes)])],
            ["of these a new best", str(len(new))]]
    if best is not None and best.correct:
        rows.append(["its best", f"{times(best.ratio)} {text_of(best.configuration)}"])
    rows += [[f"failed: {shortened(name)}", str(count)] for name, count in failures.most_common()]
    lines = [[str(one.number), duration(one.seconds), f"{one.tokens_in} / {one.tokens_out}",
              outcome_of(one, by_number)] for one in asked]
    return [Table("Language model", ["", ""], rows), Table(
        "Requests to the language model", ["request", "took", "tokens in / out", "result"], lines)]


def outcome_of(exchange: Exchange, by_number: dict[int, Trial]) -> str:
    """The failure, or each attempt with its outcome."""
    parts = [shortened(exchange.failure)] if exchange.failure else []
    for trial in (by_number[number] for number in exchange.trials if number in by_number):
        told = f"{trial.speed_up:.3f}×" if trial.correct else trial.outcome.value
        parts.append(f"attempt {trial.number}: {told}"
                     + (f" ({shortened(trial.note)})" if trial.note else ""))
    return "; ".join(parts) or "nothing"


def tables(run: Run) -> list[Table]:
    """All, in the order of a report; those that do not apply are left out."""
    tied = tie_set(run)
    found = [summary(run), *([tied] if tied.rows else []), convergence(run), top(run),
             impact(run), sizes(run), failed(run), *model(run)]
    return [table if not any(table.head) else table.without_empty_columns() for table in found]

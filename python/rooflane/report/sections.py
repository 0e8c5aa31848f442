"""The tables of a report. Each is built once; text.py and html.py set them."""
from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field

from rooflane.report import impact
from rooflane.report.run import Run, duration, nanoseconds, per_cent, times
from rooflane.tuning import Exchange, Trial, text_of

TOP = 5
LONGEST_REASON = 120


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
        return self if not self.head or not self.rows else Table(
            self.name, [self.head[at] for at in kept],
            [[row[at] for at in kept] for row in self.rows], self.notes, self.empty)


def by(trial: Trial) -> str:
    """Who proposed it."""
    return f"{trial.strategy} ({trial.source})" if trial.source else trial.strategy


def summary(run: Run) -> Table:
    """What was found, against what, and at what expense."""
    rows = [["problem", run.space.title]]
    rows += [[name, value] for name, value in (("machine", run.machine), ("program", run.program))
             if value]
    if run.strategy:
        seed = "" if run.seed is None else f", seed {run.seed}"
        rows.append(["strategy", run.strategy + seed])
    rows.append(["default", f"{text_of(run.space.default)}  {nanoseconds(run.default_ns)}"])
    is_default = run.chosen == run.space.default
    rows.append(["chosen", text_of(run.chosen) + ("  (the default)" if is_default else "")])
    if run.ratio:
        rows.append(["speed-up over the default", times(run.ratio)])
    rows += _against(run) + _verdict(run)
    correct = sum(trial.correct for trial in run.trials)
    if run.trials:
        rows.append(["attempts", f"{len(run.trials)}; {correct} correct "
                                 f"({per_cent(correct / len(run.trials))})"])
    spent = {part: sum(getattr(trial.cost, part) for trial in run.trials)
             for part in ("propose", "build", "verify", "time")}
    rows.append(["time spent", duration(sum(spent.values())) + ": " + ", ".join(
        f"{name} {duration(spent[part])}" for part, name in (
            ("propose", "proposing"), ("build", "building"), ("verify", "verifying"),
            ("time", "timing")))])
    return Table("Summary", [], rows, list(run.notes))


def _against(run: Run) -> list[list[str]]:
    """The roof, and libraries."""
    rows = []
    if run.space.roof_ns and run.default_ns:
        default = run.space.roof_ns / run.default_ns
        rows.append(["share of the roof", f"default {per_cent(default)}" + (
            f", chosen {per_cent(default / run.ratio.value)}" if run.ratio else "")])
    for name, ratio in run.libraries.items():
        told = f"{times(ratio)} as fast as the default"
        if run.ratio:  # intervals of two ratios over one default do not divide
            told += f"; chosen is {ratio.value / run.ratio.value:.3f}× as fast as {name}"
        rows.append([name, told])
    return rows


def _verdict(run: Run) -> list[list[str]]:
    if not run.verdict:
        return [["verdict", "none: the run ended before the best were measured again in fresh "
                            "processes; the fastest of many measurements is partly luck"]]
    if run.verdict.kind == "winner":
        rows = [["verdict", "a winner: everything else is slower"]]
    elif run.verdict.kind == "tie":
        rows = [["verdict", f"a tie of {len(run.verdict.tie_set)}: the differences between them "
                            "are within 2 %"]]
    else:
        rows = [["verdict", f"undecided between {len(run.verdict.tie_set)}; about "
                            f"{duration(run.verdict.seconds_more)} more would decide"]]
    if run.verdict.exact:
        rows.append(["serves", "this shape only: a neighbouring size was wrong or more than 10 % "
                               "slower"])
    return rows


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
    best: dict[str, Trial] = {}
    for trial in sorted((trial for trial in run.trials if trial.correct),
                        key=lambda trial: trial.ratio.value):
        best.setdefault(text_of(trial.configuration), trial)
    rows = [[str(trial.number), times(trial.ratio), nanoseconds(statistics.median(trial.ns))
             if trial.ns else "", by(trial), text, trial.note]
            for text, trial in list(best.items())[:TOP]]
    return Table("Top five", ["attempt", "speed-up", "time", "by", "configuration", "note"], rows,
                 ["Measured by the search; the fastest of many are partly luck."],
                 "No attempt was correct.")


def impacts(run: Run) -> list[Table]:
    """The three measures, each under its name."""
    if run.best is None:
        return []
    single = impact.one_at_a_time(run.trials, run.best)
    meanings = {tunable.name: tunable.meaning for tunable in run.space.tunables}
    rows = []
    for one in sorted(single, key=lambda one: -(one.spread or 0)):
        tried = [f"{value}: {ratio:.3f}×" for value, ratio in one.slower.items()]
        tried += [f"{value}: {outcome}" for value, outcome in one.failed.items()]
        rows.append([one.name, str(one.best), "" if one.spread is None else f"{one.spread:.3f}×",
                     ", ".join(tried) or "no other value was tried alone",
                     meanings.get(one.name, "")])
    first = Table("Impact, one at a time from the best",
                  ["tunable", "best", "most it costs", "value: time over the best's", "meaning"],
                  rows, ["Relative to the fastest trial; all other tunables unchanged."])
    found = impact.fanova(run.trials, run.seed or 0)
    second = Table("Impact, fANOVA", ["tunable", "share of the variance"],
                   [[name, per_cent(share)] for name, share in found.shares.items()],
                   ["Computed from the logarithm of time over all correct trials, including slow "
                    "regions; main effects, scaled to a sum of 100 %."],
                   f"Not calculated: {found.missing}.")
    changes = impact.consecutive(run.trials)
    third = Table("Impact, mean change between consecutive attempts",
                  ["tunable", "changes", "mean change of the speed-up", "mean size of the change"],
                  [[change.name, str(change.count), f"{100 * change.mean:+.1f} %",
                    per_cent(change.size)] for change in changes],
                  ["Other tunables changed in the same step, so this shows where the search moved, "
                   "not the effect of a tunable."], "No two correct attempts in a row.")
    return [first, second, third]


def sizes(run: Run) -> Table:
    """Stability of the chosen configuration."""
    found = impact.stability(run.all_sizes())
    head = ["size", "outcome", "speed-up over its own default", "reason"]
    if found is None:
        return Table("Stability across sizes", head, [], empty="Not tried at other sizes.")
    rows = [[size.shape, size.outcome.value, times(size.ratio), size.reason]
            for size in found.sizes]
    if found.score is None:
        told = "No size is correct: not stable."
    else:
        told = (f"{'Stable' if found.stable else 'Not stable'}: score {found.score:.3f} = 1 − "
                "standard deviation / mean of the speed-ups (stable: above "
                f"{impact.STABLE:g} and all correct); they range from {found.low:.3f}× to "
                f"{found.high:.3f}×"
                + ("." if found.all_correct else "; not all sizes are correct."))
    return Table("Stability across sizes", head, rows, [told])


def failed(run: Run) -> Table:
    """Failures by reason."""
    rows = [[str(one.count), one.outcome, shortened(one.reason), str(one.first.number),
             text_of(one.first.configuration)] for one in impact.failures(run.trials)]
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
    by_number = {trial.number: trial for trial in run.trials}
    outcomes: Counter[str] = Counter()
    new_bests = {trial.number for trial, _ in run.bests()}
    came: list[Trial] = []
    for exchange in run.exchanges:
        came += [by_number[number] for number in exchange.trials if number in by_number]
    outcomes.update(trial.outcome.value for trial in came)
    failures = Counter(exchange.failure for exchange in run.exchanges if exchange.failure)
    best = max(came, key=lambda trial: trial.speed_up, default=None)
    rows = [["models", ", ".join(sorted({exchange.model for exchange in run.exchanges}))],
            ["requests", f"{len(run.exchanges)}; {len(run.exchanges) - failures.total()} of use"],
            ["time", duration(sum(exchange.seconds for exchange in run.exchanges))],
            ["tokens", f"{sum(exchange.tokens_in for exchange in run.exchanges)} in, "
                       f"{sum(exchange.tokens_out for exchange in run.exchanges)} out"],
            ["resulting attempts", ", ".join([f"{len(came)}"] + [
                f"{count} {name}" for name, count in outcomes.most_common()])],
            ["of these a new best", str(sum(trial.number in new_bests for trial in came))]]
    if best is not None and best.correct:
        rows.append(["its best", f"{times(best.ratio)}  {text_of(best.configuration)}"])
    rows += [[f"failed: {shortened(name)}", str(count)] for name, count in failures.most_common()]
    what = Table("Language model", [], rows)
    lines = [[str(exchange.number), duration(exchange.seconds),
              f"{exchange.tokens_in} / {exchange.tokens_out}", outcome_of(exchange, by_number)]
             for exchange in run.exchanges]
    return [what, Table("Requests to the language model",
                        ["request", "took", "tokens in / out", "result"], lines)]


def outcome_of(exchange: Exchange, by_number: dict[int, Trial]) -> str:
    """The failure, or each attempt with its outcome."""
    parts = [shortened(exchange.failure)] if exchange.failure else []
    for number in exchange.trials:
        if (trial := by_number.get(number)) is None:
            continue
        told = f"{trial.speed_up:.3f}×" if trial.correct else trial.outcome.value
        note = f" ({shortened(trial.note)})" if trial.note else ""
        parts.append(f"attempt {number}: {told}{note}")
    return "; ".join(parts) or "nothing"


def tables(run: Run) -> list[Table]:
    """All, in the order of a report; those that do not apply are left out."""
    tied = tie_set(run)
    found = [summary(run), *([tied] if tied.rows else []), convergence(run), top(run),
             *impacts(run), sizes(run), failed(run), *model(run)]
    return [table.without_empty_columns() for table in found]

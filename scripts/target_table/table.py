"""Verdicts as Markdown. Figures come from judging.py; nothing is computed here."""
from __future__ import annotations

from collections.abc import Sequence

from rooflane_json import Figure
from target_table.judging import Judged, Verdict
from target_table.results import Problem, Row, failure, passed
from target_table.sides import Sides


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"


def _number(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 100 else ">99"


def _ratio(figure: Figure | None) -> str:
    if figure is None:
        return "–"
    interval = f" [{_number(figure.low)}, {_number(figure.high)}]" if figure.low else ""
    return _number(figure.value) + interval


def _per_cent(figure: Figure | None) -> str:
    return "–" if figure is None else f"{figure.value:.1f}"


def _goal(conditions: Sequence[Judged]) -> str:
    texts = []
    for judged in conditions:
        condition = judged.condition
        bound = (f"{condition.least:g} % of roof" if condition.what == "roof"
                 else f"{condition.least:.2f} × {condition.what}")
        figure = (_per_cent if condition.what == "roof" else lambda e: _ratio(e).split()[0])(
            judged.figure)
        texts.append(f"{'each ' if condition.each else ''}{bound} ({figure})")
    return ", ".join(texts) or "–"


def overview(verdicts: Sequence[Verdict], sides: Sides, machine: str) -> str:
    """One line per class and number of threads."""
    text = _row(["class", "threads", "problems", "ratio to the best peer [95 %]", "worst case",
                 "% of roof (least)", "must", "aim", "met"])
    text += _row(["---", "---:", "---:", "---", "---", "---", "---", "---", "---"])
    for verdict in verdicts:
        worst = verdict.worst("best")
        lowest = verdict.worst("roof")
        roof = _per_cent(verdict.means.get("roof"))
        if lowest:
            roof += f" ({_per_cent(lowest.figures['roof'])})"
        case = (f"{_ratio(worst.figures['best']).split()[0]} `{worst.shape}` "
                f"({worst.peers[0]['variant']})" if worst else "no peer passed")
        variant = verdict.problems[0].ours["variant"]
        name = verdict.name + (f" ({variant})" if variant != sides.ours else "")
        text += _row([name, str(verdict.threads), str(len(verdict.problems)),
                      _ratio(verdict.means.get("best")), case, roof, _goal(verdict.must),
                      _goal(verdict.aim), verdict.met])
    ours = f"`{sides.ours}`" + (", or of the variant named after the class" if sides.others else "")
    return text + (
        f"\nCPU: {_machine(verdicts)}; goals of {sides.machines[machine]}. A ratio is the best "
        f"peer's time divided by that of {ours}, in the same rounds; for a class it is the "
        "geometric mean. % of roof: geometric mean (least). The figure in brackets after a goal is "
        "compared with it. `?`: the goal lies within its 95 % interval.\n")


def listed_and_random(verdicts: Sequence[Verdict]) -> str:
    """A class's listed problems beside the random ones, where both were measured."""
    drawn = {(verdict.name, verdict.threads): verdict for verdict in verdicts}
    pairs = [(verdict, random) for verdict in verdicts
             if (random := drawn.get((f"{verdict.name}-random", verdict.threads)))]
    if not pairs:
        return ""
    text = "\n" + _row(["class", "threads", "listed [95 %]", "worst", "random [95 %]", "worst"])
    text += _row(["---", "---:", "---:", "---:", "---:", "---:"])
    for pair in pairs:
        cells = [pair[0].name, str(pair[0].threads)]
        for verdict in pair:
            least = verdict.worst("best")
            cells += [_ratio(verdict.means.get("best")),
                      _number(least.figures["best"].value) if least else "–"]
        text += _row(cells)
    return text


def _machine(verdicts: Sequence[Verdict]) -> str:
    return verdicts[0].problems[0].machine if verdicts else ""


def _speed(row: Row) -> str:
    """Time, and speed in the unit of the problem's bound."""
    if not passed(row):
        return failure(row)
    ns = row["p50_ns"]
    time = f"{ns / 1000:.4g} µs"
    if not row["flops"]:
        return time
    if row["bound"] == "memory":
        return f"{time}, {row['bytes'] / ns:.0f} GB/s"
    return f"{time}, {row['flops'] / ns / 1000:.4g} TFLOP/s"


def each_problem(verdicts: Sequence[Verdict], sides: Sides, machine: str) -> str:
    """One line per problem with the goal of its class; verdicts are of one problem each."""
    text = _row(["kernel", "shape", "math", f"`{sides.ours}`", "best peer", "ratio [95 %]",
                 "% of ceiling", "must", "aim", "met"])
    text += _row(["---", "---", "---", "---", "---", "---", "---:", "---", "---", "---"])
    counts = {"aim": 0, "must": 0, "no": 0}
    for verdict in verdicts:
        problem = verdict.problems[0]
        best = problem.peers[0] if problem.peers else None
        told = f"{best['variant']} {_speed(best)}" if best else "none passed"
        # The line names the problem already.
        met = verdict.met.replace(f"{problem.text} ", "")
        counts |= {word: counts[word] + 1 for word in counts if met.startswith(word)}
        text += _row([problem.kernel, problem.shape, problem.math, _speed(problem.ours), told,
                      _ratio(problem.figures.get("best")), _per_cent(problem.figures.get("roof")),
                      _goal(verdict.must), _goal(verdict.aim), met])
    return text + (
        f"\n{len(verdicts)} problems: {counts['aim']} reach the aim, {counts['must']} more reach "
        f"the must, {counts['no']} reach neither. Device: {_machine(verdicts)}; goals of "
        f"{sides.machines[machine]}. A ratio is the best peer's time divided by that of "
        f"`{sides.ours}`, in the same rounds. Peers compute in the line's math; beside 3xtf32, "
        "which none has, they are strict float32, measured in another run. The ceiling is the "
        "least time that the device allows, from its measured peak of that math and its bandwidth "
        "at the problem's footprint. The figure in brackets after a goal is compared with it. "
        "`?`: the goal lies within its 95 % interval.\n")


def peers(problems: Sequence[Problem], sides: Sides, absent: dict[str, str]) -> str:
    """Which peers took part, how often each was the best, and which are missing and why."""
    libraries: dict[str, set[str]] = {}
    best: dict[str, int] = {}
    failures: dict[str, list[str]] = {}
    coarse: dict[str, list[str]] = {}
    for problem in problems:
        for row in problem.variants:
            name = row["variant"]
            libraries.setdefault(name, set()).update({row["library"]} - {None})
            if row["status"] == "INACCURATE":
                coarse.setdefault(name, []).append(f"{problem.text}: {row['reason']}")
            elif not passed(row) and row["status"] not in ("UNSUPPORTED", "SKIPPED"):
                failures.setdefault(name, []).append(f"{problem.text} {failure(row)}")
        for fastest in problem.peers[:1]:
            best[fastest["variant"]] = best.get(fastest["variant"], 0) + 1
    text = "\nPeers: " + "; ".join(
        f"{name} ({', '.join(sorted(libraries[name]))}), best of {best.get(name, 0)}"
        for name in sorted(libraries, key=lambda name: -best.get(name, 0))
        if libraries[name] and "@" not in name) + ".\n"
    expected = sides.peers_of({problem.kernel for problem in problems})
    missing = [name for name in sides.peers if name in expected and not libraries.get(name)]
    missing += [name for name in absent if name not in sides.peers]
    if missing:
        text += "\nMissing:\n\n" + "".join(
            f"- {name}: {absent.get(name, 'no row of it at these numbers of threads')}\n"
            for name in missing)
    if coarse:
        text += "\nINACCURATE, but still counted as peers:\n\n" + "".join(
            f"- {name}: {len(cases)}, first {cases[0]}\n" for name, cases in coarse.items())
    if failures:
        text += "\nNot counted, because they did not pass:\n\n" + "".join(
            f"- {name}: {len(cases)}, first {cases[0]}\n" for name, cases in failures.items())
    return text


def every_problem(verdicts: Sequence[Verdict]) -> str:
    """One line per problem and number of threads."""
    text = "\n" + _row(["class", "problem", "threads", "time, µs", "best peer", "ratio [95 %]",
                        "% of roof"]) + _row(["---", "---", "---:", "---:", "---", "---", "---:"])
    for verdict in verdicts:
        for problem in verdict.problems:
            ours = problem.ours
            time = f"{ours['p50_ns'] / 1000:.4g}" if passed(ours) else failure(ours)
            text += _row([verdict.name, f"`{problem.text}`", str(verdict.threads), time,
                          problem.peers[0]["variant"] if problem.peers else "–",
                          _ratio(problem.figures.get("best")),
                          _per_cent(problem.figures.get("roof"))])
    return text

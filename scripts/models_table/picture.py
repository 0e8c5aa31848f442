"""One picture of all models: where time goes, and predicted against measured speeds."""
from __future__ import annotations

from rooflane import drawing

from models_table import tables
from models_table.runs import Result


def shares(results: list[Result]) -> str:
    """A bar a phase, cut by kernels."""
    rows, kernels = [], []
    for result in results:
        for whole in tables.wholes(result):
            cut = dict(tables.shares_by_kernel(result, whole["step"]))
            phase = "" if whole["step"] == "run" else f", {whole['step']}"
            rows.append((result.run.name + phase, cut))
            kernels += [kernel for kernel in cut if kernel not in kernels]
    colours = {kernel: drawing.COLOURS[i % len(drawing.COLOURS)]
               for i, kernel in enumerate(kernels)}
    return drawing.bars(rows, colours, "Shares of time by kernel", "per cent of a run")


def proofs(results: list[Result]) -> str:
    """Predicted across, measured up; on the line they are equal."""
    series = []
    everything = []
    for i, result in enumerate(results):
        points = [(float(proof["predicted"]), float(proof["measured"]))
                  for proof in result.proofs]
        tips = [f"{proof['swap']}: {float(proof['difference_points']):+.2f} points"
                for proof in result.proofs]
        everything += points
        series.append(drawing.Series(result.run.name, points,
                                     drawing.COLOURS[i % len(drawing.COLOURS)], joined=False,
                                     tips=tips))
    if everything:
        ends = [min(min(point) for point in everything), max(max(point) for point in everything)]
        series.append(drawing.Series("equal", [(end, end) for end in ends], "#8a949e"))
    return drawing.lines(series, "Predicted and measured speed of swaps",
                         "predicted speed of the whole, relative", "measured")


def picture(results: list[Result]) -> str:
    return drawing.stacked([("Where time goes", shares(results)),
                            ("What other variants give", proofs(results))],
                           "Models: shares by kernel, predicted and measured swaps")

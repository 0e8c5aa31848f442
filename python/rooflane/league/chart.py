"""The league's picture: P over time, and the scores with their intervals."""
from __future__ import annotations

from rooflane import drawing
from rooflane.league.standings import League

LEAST_P = -1.0  # what is worse than that is cut off: the others would be told apart no longer


def svg(league: League) -> str:
    """A picture of its own."""
    colours = {standing.strategy: drawing.COLOURS[at % len(drawing.COLOURS)]
               for at, standing in enumerate(league.standings)}
    series = [drawing.Series(standing.strategy,
                             [(100 * (at + 1) / len(standing.curve), value)
                              for at, value in enumerate(standing.curve)],
                             colours[standing.strategy])
              for standing in league.standings]
    values = [value for one in series for _, value in one.points]
    low = max(LEAST_P, min([0.0, *values]) - 0.05)
    over_time = drawing.lines(series, "P over time", "share of the budget, %", "P", (low, 1.0),
                              [(0.0, "random search")])
    rows = []
    for standing in league.standings:
        score, name = standing.score, standing.strategy
        if score.value < LEAST_P:
            name += f" ({score.value:.2f})".replace("-", "−")
        rows.append((name, *(max(LEAST_P, value) for value in (score.value, score.low, score.high)),
                     colours[standing.strategy]))
    scores = drawing.intervals(rows, "score per strategy",
                               "P, mean over the budget, with 95 % interval")
    count = len(league.spaces)
    return drawing.stacked([(f"P over time, mean of {count} spaces", over_time),
                            ("Score", scores)], "Which search finds the most")

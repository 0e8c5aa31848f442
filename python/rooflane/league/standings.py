"""What a league's results come to: an order of strategies, with intervals; as Markdown and JSON.

Intervals are bootstraps over spaces and over the repeats in each. All strategies see the same
resamples, so that how far one is behind the first is known better than either's own score.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rooflane.league.contest import Result
from rooflane.league.score import SHARES, Estimate, estimate, mean_of, picks, resampled

KEYS = [f"{share:g}" for share in SHARES]
RANDOM = "(random, calculated)"


@dataclass
class Standing:
    """A strategy's line."""
    strategy: str
    score: Estimate
    behind: Estimate | None  # the first; none of the first itself
    at: dict[str, Estimate]  # share of the budget -> P then
    within: dict[str, Estimate]  # -> probability that the winner is within 1 % of the optimum
    groups: dict[str, Estimate]  # "gemm hwy" -> score
    evaluations: float  # the median over everything

    @property
    def tied(self) -> bool:
        """Whether nothing says that the first is better."""
        return self.behind is None or self.behind.low <= 0


@dataclass
class League:
    """All standings, the best first, over the spaces that all strategies came through."""
    standings: list[Standing]
    baseline_within: dict[str, float]
    spaces: list[str]
    left_out: list[str]  # "strategy: space: why"


def league_of(results: Sequence[Result], seed: int = 0) -> League:
    """The order that the results come to."""
    left_out = [f"{result.strategy}: {result.space}: {result.failure}"
                for result in results if result.failure]
    by_strategy: dict[str, dict[str, Result]] = {}
    for result in results:  # a strategy without any figure does not take the spaces from the others
        if not result.failure:
            by_strategy.setdefault(result.strategy, {})[result.space] = result
    everything = sorted({space for found in by_strategy.values() for space in found})
    spaces = [space for space in everything
              if all(space in found for found in by_strategy.values())]
    left_out += [f"{space}: not all strategies have figures" for space in everything
                 if space not in spaces]
    if not spaces:
        return League([], {}, [], left_out)
    rows = {name: [found[space] for space in spaces] for name, found in by_strategy.items()}
    chosen = picks(len(spaces), seed)

    def over(values: list[Sequence[Any]], resamples: np.ndarray = chosen) -> Estimate:
        arrays = [np.array(one, float) for one in values]
        return estimate(mean_of(arrays), resampled(arrays, resamples, seed))

    overall = {name: resampled([np.array(one.scores) for one in found], chosen, seed)
               for name, found in rows.items()}
    scores = {name: mean_of([one.scores for one in found]) for name, found in rows.items()}
    order = sorted(scores, key=lambda name: -scores[name])
    first = order[0]
    standings = []
    for name in order:
        found, groups = rows[name], {}
        for group in sorted({one.group for one in found}):
            some = [one.scores for one in found if one.group == group]
            groups[group] = over(some, picks(len(some), seed))
        standings.append(Standing(
            name, estimate(scores[name], overall[name]), None if name == first else
            estimate(scores[first] - scores[name], overall[first] - overall[name]),
            at={key: over([one.at[key] for one in found]) for key in KEYS},
            within={key: over([one.within[key] for one in found]) for key in KEYS},
            groups=groups,
            evaluations=float(np.median([n for one in found for n in one.evaluations]))))
    return League(standings, {key: float(np.mean([one.baseline_within[key]
                                                  for one in rows[first]])) for key in KEYS},
                  spaces, left_out)


def as_json(league: League, settings: dict[str, Any]) -> dict[str, Any]:
    """Everything, for scripts."""
    return {"format": 1, "settings": settings,
            "standings": [asdict(standing) | {"tied": standing.tied}
                          for standing in league.standings],
            "baseline_within": league.baseline_within, "spaces": league.spaces,
            "left_out": league.left_out}


def _told(value: Estimate) -> str:
    return f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]".replace("-", "−")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(head), line(["---"] + ["--:"] * (len(head) - 1)), *map(line, rows)])


def markdown(league: League, about: Sequence[Sequence[str]]) -> str:
    """The tables; `about`: a row per space, of ABOUT_HEAD."""
    if not league.standings:
        return "\n".join(["No figures.", "", *(f"- {line}" for line in league.left_out), ""])
    shares = [f"{float(key):.0%}".replace("%", " %") for key in KEYS]
    score_rows = [[standing.strategy, _told(standing.score),
                   "" if standing.behind is None else _told(standing.behind)
                   + (" (tied)" if standing.tied else ""),
                   *(_told(standing.at[key]) for key in KEYS), f"{standing.evaluations:.0f}"]
                  for standing in league.standings]
    score_rows.append([RANDOM, "0", "", *["0"] * len(KEYS), ""])
    within_rows = [[standing.strategy, *(_told(standing.within[key]) for key in KEYS)]
                   for standing in league.standings]
    within_rows.append([RANDOM, *(f"{league.baseline_within[key]:.2f}" for key in KEYS)])
    groups = sorted({group for standing in league.standings for group in standing.groups})
    group_rows = [[standing.strategy, *(_told(standing.groups[group]) for group in groups)]
                  for standing in league.standings]
    parts = [
        f"P over {len(league.spaces)} spaces: 0 is random search, 1 the optimum at once; mean over "
        "the budget, then at shares of it. 95 % intervals over spaces and repeats. `(tied)`: "
        "nothing says that the first is better.", "",
        _table(["strategy", "P", "behind the first", *(f"at {share}" for share in shares),
                "evaluations"], score_rows), "",
        "Probability that the configuration named at a share of the budget is truly within 1 % of "
        "the optimum:", "",
        _table(["strategy", *(f"at {share}" for share in shares)], within_rows), "",
        "P per kernel and variant:", "", _table(["strategy", *groups], group_rows), "",
        "The spaces:", "", _table(ABOUT_HEAD, about), ""]
    if league.left_out:
        parts += ["Left out:", "", *(f"- {line}" for line in league.left_out), ""]
    return "\n".join(parts)


ABOUT_HEAD = ["space", "configurations", "failing", "default over optimum", "budget (s)",
              "random draws in it"]

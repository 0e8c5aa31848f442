"""`tune.py league`: keeps completely measured spaces, and compares strategies on them."""
from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

import numpy as np

from rooflane.league import spaces, standings
from rooflane.league.arguments import arguments_of
from rooflane.league.contest import Settings, contest
from rooflane.league.replay import ReplayedSpace
from rooflane.league.score import Judge
from rooflane.league.spaces import Record, SpaceError


def main(words: list[str]) -> int:
    """Exit status: 0 good, 1 a strategy failed somewhere, 2 wrong arguments or input."""
    arguments = arguments_of(words)
    try:
        return RUN[arguments.verb](arguments)
    except (SpaceError, OSError) as error:
        print(f"tune.py league: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tune.py league: interrupted; --results FILE keeps what is done", file=sys.stderr)
        return 130


def _line(made: Record, settings: Settings) -> list[str]:
    """The cells of standings.ABOUT_HEAD; without the last two where there is nothing to find."""
    replayed = ReplayedSpace(made, settings.rounds)
    default = replayed.truth[spaces.text_of(made["default"])]
    failing = 1 - len(replayed.truth) / len(replayed)
    cells = [spaces.key_of(made), str(len(replayed)), f"{100 * failing:.0f} %",
             f"{default / replayed.optimum:.3f}"]
    try:
        judge = Judge(replayed, settings.seed)
    except SpaceError:
        return cells
    return [*cells, f"{judge.budget_s:.1f}", f"{judge.draws:.0f}"]


def _list(arguments: argparse.Namespace) -> int:
    for made in spaces.read(arguments.spaces):
        key, *cells = _line(made, Settings())
        told = [f"{name} {cell}" for name, cell in zip(standings.ABOUT_HEAD[1:], cells)]
        if len(cells) + 1 < len(standings.ABOUT_HEAD):
            told.append("nothing to search for")
        print(f"{key}: {', '.join(told)}")
    return 0


def _add(arguments: argparse.Namespace) -> int:
    size = spaces.add(arguments.spaces,
                      [made for file in arguments.files for made in spaces.read(file)])
    print(f"{arguments.spaces}: {len(spaces.read(arguments.spaces))} spaces, {size} bytes")
    return 0


def _latencies(given: list[str]) -> dict[str, float]:
    found = {}
    for item in given:
        name, _, seconds = item.partition("=")
        try:
            found[name] = float(seconds)
        except ValueError:
            raise SpaceError(f"--latency {item}: NAME=SECONDS is needed") from None
        if not (np.isfinite(found[name]) and found[name] >= 0):
            raise SpaceError(f"--latency {item}: not a time")
    return found


def _run(arguments: argparse.Namespace) -> int:
    settings = Settings(arguments.repeats, arguments.rounds, arguments.seed_points, arguments.seed,
                        _latencies(arguments.latency))
    wanted = [made for made in spaces.read(arguments.spaces)
              if not arguments.only or any(text in spaces.key_of(made)
                                           for text in arguments.only)]
    if not wanted:
        raise SpaceError(f"{arguments.spaces}: no space holds {' or '.join(arguments.only)}")
    chosen, lines = [], []
    for made in wanted:
        line = _line(made, settings)
        if len(line) == len(standings.ABOUT_HEAD):
            chosen.append(made)
            lines.append(line)
        else:
            print(f"left out, nothing to search for: {line[0]}", file=sys.stderr)
    if not chosen:
        raise SpaceError("nothing to search for in any of the spaces")
    names = list(dict.fromkeys(name for name in arguments.strategies.split(",") if name))
    results = list(contest(arguments.spaces, chosen, names, settings, arguments.jobs,
                           arguments.results, lambda line: print(line, file=sys.stderr)))
    league = standings.league_of(results, settings.seed)
    text = standings.markdown(league, lines)
    if arguments.markdown:
        arguments.markdown.write_text(text, encoding="utf-8")
    else:
        print(text)
    if arguments.json:
        told = asdict(settings) | {"latency_s": dict(settings.latency_s)}
        arguments.json.write_text(json.dumps(standings.as_json(league, told), indent=1,
                                             allow_nan=False) + "\n", encoding="utf-8")
    return 1 if any(result.failure for result in results) else 0


RUN = {"list": _list, "add": _add, "run": _run}

"""Text tables of `rooflane archive`: columns in line, the same on a terminal and in a pipe."""
from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ..tuning import Configuration, Ratio, Trial, text_of
from .records import RunRecord

Line = dict[str, Any]  # of queries.py
# What a terminal would act on; reasons and answers are other programs' text.
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def table(headings: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """Columns as wide as their widest cell; numbers are aligned right."""
    cells = [[" ".join(CONTROL.sub(" ", str(cell)).split()) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(headings, *cells)]
    right = [bool(cells) and all(not cell or cell[0].isdigit() for cell in column)
             for column in zip(*cells)] or [False] * len(headings)

    def row(line: Sequence[str]) -> str:
        return "  ".join(cell.rjust(width) if to_right else cell.ljust(width)
                         for cell, width, to_right in zip(line, widths, right)).rstrip()

    return "".join(row(line) + "\n" for line in [headings, *cells])


def interval(ratio: Ratio | None) -> str:
    """0.912 [0.905, 0.919]"""
    return f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else ""


def speed_up(value: float | None) -> str:
    """1.096x"""
    return f"{value:.3f}x" if value else ""


def by(trial: Trial) -> str:
    """Who proposed it."""
    return f"{trial.strategy} ({trial.source})" if trial.source else trial.strategy


def moment(time: datetime | None) -> str:
    """In UTC, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M") if time else ""


def duration(seconds: float) -> str:
    """Seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def where(line: Line) -> str:
    """The device, or threads and instructions."""
    return line["device"] or (f"{line['threads']} thread{'s' * (line['threads'] != 1)} "
                              f"{line['isa']}").strip()


def difference(configuration: Configuration, default: Configuration) -> str:
    """What a configuration changes of the default."""
    changed = {name: value for name, value in configuration.items()
               if default.get(name) != value}
    return text_of(changed) if changed else "the default"


def run_table(lines: Sequence[Line]) -> str:
    """A run a line."""
    return table(
        ["run", "began (UTC)", "state", "problem", "variant", "where", "strategy", "evaluations",
         "correct", "best ratio [95 %]", "cost"],
        [[line["run"], moment(line["started"]), line["state"], line["shape"], line["variant"],
          where(line), line["strategy"], line["evaluations"], line["correct"],
          interval(line["best"]), duration(line["seconds"])] for line in lines])


def best_table(lines: Sequence[Line]) -> str:
    """A configuration a line."""
    def chosen(line: Line) -> str:
        verdict = line["verdict"]
        if verdict is None:
            return "none"
        same = verdict.chosen == line["configuration"]
        return f"{verdict.kind}: {'this' if same else 'another'}, {interval(verdict.ratio)}"

    return table(
        ["space", "problem", "variant", "where", "machine", "ratio [95 %]", "speed-up", "samples",
         "run", "verdict", "changes of the default"],
        [[line["space"], line["shape"], line["variant"], where(line), line["machine"],
          interval(line["ratio"]), speed_up(1 / line["ratio"].value), line["samples"], line["run"],
          chosen(line), difference(line["configuration"], line["default"])] for line in lines])


def history_table(run: RunRecord) -> str:
    """An attempt a line."""
    rows, best = [], 0.0
    for trial in run.trials:
        best = max(best, trial.speed_up)
        rows.append([trial.number, moment(trial.time), by(trial), trial.outcome.value,
                     interval(trial.ratio), speed_up(best), duration(trial.cost.total),
                     difference(trial.configuration, run.space.default),
                     "; ".join(filter(None, (trial.reason, trial.note)))])
    return table(["number", "ended (UTC)", "strategy", "outcome", "ratio [95 %]", "best so far",
                  "cost", "changes of the default", "remarks"], rows)


def statistics_text(found: dict[str, Any]) -> str:
    """A summary, then outcomes and strategies."""
    def percent(value: float | None) -> str:
        return "" if value is None else f"{100 * value:.1f} %"

    lines = [f"{found['attempts']} attempts in {found['runs']} runs on {found['spaces']} spaces, "
             f"{found['configurations']} configurations, {duration(found['seconds'])}"]
    if found["attempts"]:
        lines.append(f"{found['correct']} correct ({percent(found['success_rate'])}); mean "
                     f"speed-up {speed_up(found['mean_speed_up']) or 'none'}, of the best of each "
                     f"space {speed_up(found['mean_speed_up_of_best']) or 'none'} (geometric)")
    asked = found["exchanges"]
    if asked["requests"]:
        lines.append(f"{asked['requests']} requests to language models, "
                     f"{duration(asked['seconds'])}, {asked['tokens_in']} tokens in, "
                     f"{asked['tokens_out']} out")
    text = "\n".join(lines) + "\n"
    if found["attempts"]:
        text += "\n" + table(["outcome", "attempts"],
                             list(found["outcomes"].items()))
        text += "\n" + table(
            ["strategy", "attempts", "correct", "success", "mean speed-up", "best", "cost"],
            [[name, one["attempts"], one["correct"], percent(one["success_rate"]),
              speed_up(one["mean_speed_up"]), speed_up(one["best_speed_up"]),
              duration(one["seconds"])] for name, one in found["strategies"].items()])
    return text

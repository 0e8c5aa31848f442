"""Runs `rooflane bench` over the classes: which peers are here, then one run per family of kernels.

What the rows say is read in results.py. A family's problems, classes and thread counts share one
run; classes of another math or cache mode have one more.
"""
from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rooflane_json import Refused, ask
from target_table.goals import FP32, Setting
from target_table.sides import Sides


class BenchFailed(Exception):
    """The benchmark could not run; its own message is on standard error."""

    def __init__(self, text: str, status: int):
        super().__init__(text)
        self.status = status


def find_peers(rooflane: Path, sides: Sides) -> tuple[set[str], dict[str, str]]:
    """The variants that are here, and for each missing peer the reason. Each peer is asked for by
    itself: a failing worker must not take others along. Makes their environments where they are not
    there yet."""
    here: set[str] = set()
    absent: dict[str, str] = {}
    by_peer: dict[str | None, list[str]] = {}
    for variant, peer in sides.peers.items():
        by_peer.setdefault(peer, []).append(variant)
    for peer, variants in by_peer.items():
        reasons: dict[str, str] = {}
        try:
            told = ask(rooflane, "list", *(["--peers", peer] if peer else []))
            for kernel in told["kernels"]:
                for one in kernel["variants"]:
                    if one["available"]:
                        here |= {one["name"]} & {sides.ours, *sides.others, *variants}
                    else:
                        reasons.setdefault(one["name"], one["reason"])
        except Refused as error:
            if peer is None:
                raise BenchFailed(f"no list of variants: {error}", error.status) from error
            reasons = dict.fromkeys(variants, str(error))
        for variant in variants:
            if variant not in here:
                absent[variant] = reasons.get(variant, "not in this build")
                print(f"peer {variant} is absent: {absent[variant]}", file=sys.stderr)
    return here, absent


@dataclass(frozen=True)
class Request:
    """What to measure, and how; lists of shapes by class, and the setting of each class."""
    sides: Sides
    shapes: dict[str, list[str]]
    settings: dict[str, Setting]
    level: str
    threads: str | None = None
    launches: str | None = None
    resume: bool = False
    options: tuple[str, ...] = ()  # further ones of `bench`


def _bench(rooflane: Path, request: Request, folder: Path, file: Path, what: list[str]) -> None:
    """One run of the benchmark into `file`. Raises BenchFailed."""
    launches, seconds = request.sides.effort[request.level]
    command = [str(rooflane), "bench", "--csv", str(file), *what,
               "--launches", str(request.launches or launches), "--max-time", str(seconds),
               *request.sides.options, *request.options]
    if threads := request.threads or request.sides.threads:
        command += ["--threads", threads]
    if request.resume:
        command.append("--resume")
    print(f"{file.stem}: {what[what.index('--preset') + 1]}", file=sys.stderr, flush=True)
    begin = time.monotonic()
    status = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, check=False).returncode
    # Status 1: a row failed; 3 with rows: ours refuses all of them. The table says which and why.
    if status not in (0, 1) and not (status == 3 and file.exists()):
        raise BenchFailed(f"{file.stem}: rooflane bench ended with status {status}", status)
    print(f"{file.stem}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


def measure(rooflane: Path, request: Request, folder: Path, prefix: Path
            ) -> tuple[list[Path], dict[str, str]]:
    """Measures the classes into PREFIX-FAMILY.csv and PREFIX-FAMILY-MATH.csv; those files, and the
    peers and maths that are absent with the reason. `folder` takes one file of shapes per class:
    the class is the row's preset. Raises BenchFailed."""
    rooflane = rooflane.absolute()
    sides = request.sides
    here, absent = find_peers(rooflane, sides)
    files = []
    for family, (kernels, peers) in sides.families.items():
        classes = [name for name in request.shapes if name.split("-")[0] in kernels]
        if not classes:
            continue
        for name in classes:
            (folder / name).write_text("\n".join(request.shapes[name]) + "\n", encoding="utf-8")
        ours = [sides.ours, *(name for name, has in sides.others.items()
                              if name in here and set(has) & set(kernels))]
        usable = [variant for variant in peers if variant in here]
        built = [variant for variant in usable if sides.peers[variant] is None]
        served = [peer for variant in usable if (peer := sides.peers[variant])]
        beside = ["--peers", ",".join(served)] if served else []
        for setting, of_setting in _runs(sides, request.settings, classes):
            alone = sides.is_alone(setting.math)
            what = ["--preset", ",".join(of_setting),
                    "-v", ",".join(ours if alone else ours + built), *([] if alone else beside)]
            words = [prefix.name, family]
            if setting.math != FP32:
                what += ["--math", setting.math]
                words.append(setting.math)
            if setting.cache != "warm":
                what += ["--cache", setting.cache]
                words.append(setting.cache)
            file = prefix.with_name("-".join(words) + ".csv")
            try:
                _bench(rooflane, request, folder, file, what)
                files.append(file)
            except BenchFailed as error:  # this build may not know the math; the rest holds
                if setting.math == FP32:
                    raise
                absent[f"{sides.ours} in {setting.math}"] = str(error)
                print(error, file=sys.stderr)
    return files, absent


def _runs(sides: Sides, settings: dict[str, Setting],
          classes: list[str]) -> list[tuple[Setting, list[str]]]:
    """Which classes share a run. Where peers have no part in other maths, their fp32 rows of these
    problems are measured as well."""
    runs: dict[Setting, list[str]] = {}
    for name in classes:
        setting = settings.get(name, Setting())
        if sides.is_alone(setting.math):
            runs.setdefault(Setting(), []).append(name)
        runs.setdefault(setting, []).append(name)
    return sorted(runs.items(), key=lambda run: run[0] != Setting())

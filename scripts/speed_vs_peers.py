#!/usr/bin/env python3
"""Compares our kernels with every peer, class by class, with the goals of each, in a table.
With --opencl, the OpenCL kernels on a GPU, problem by problem; with --low-precision, short
operands, quantized weights and fused functions. The table is Markdown.

bench/targets/*shapes.txt lists the problems, bench/targets/*targets.txt the goals. `rooflane bench`
measures (target_table/measuring.py); target_table/judging.py compares with the goals. Standard
library only. Exit status: 0 the table was made, even if goals are missed; 2 wrong arguments or
input; 3 --opencl without a GPU; otherwise that of the benchmark that could not run.
"""
from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
sys.path.insert(0, str(SCRIPTS))

from rooflane_json import PROGRAM, Refused, ask  # noqa: E402
from target_table import goals, judging, measuring, results, sides, table  # noqa: E402

DATA = SCRIPTS.parent / "bench" / "targets"


def arguments_of(words: list[str]) -> argparse.Namespace:
    """Reads the command line; exits with 2 on what is wrong with it."""
    parser = argparse.ArgumentParser(
        prog="opencl_vs_peers.sh" if "--opencl" in words else "speed_vs_peers.sh",
        allow_abbrev=False,
        description="Measures our kernels against every peer; prints ratios and goals.")
    parser.add_argument("--opencl", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--low-precision", action="store_true",
                        help="short operands, quantised weights and fused functions: the classes "
                             "of bench/targets/lowp_shapes.txt")
    parser.add_argument("--cl-device", metavar="I", type=int,
                        help="of opencl_vs_peers.sh: another device than the first GPU, not "
                             "necessarily a GPU")
    level = parser.add_mutually_exclusive_group()
    level.add_argument("--quick", dest="level", action="store_const", const="quick",
                       default="default", help="few problems of each class")
    level.add_argument("--full", dest="level", action="store_const", const="full",
                       help="more and larger problems, three repetitions")
    parser.add_argument("--threads", metavar="N,...", help="default: 1 and all physical cores")
    parser.add_argument("--launches", metavar="N",
                        help="repetitions; default: 2, with --full 3; more repetitions narrow the "
                             "intervals, especially for classes with one problem")
    parser.add_argument("--random", metavar="N", type=int, default=0,
                        help="also N random problems of each kernel, as classes KERNEL-random")
    parser.add_argument("--seed", metavar="S", type=int, default=1, help="for --random; default 1")
    parser.add_argument("--classes", metavar="C,...", default="",
                        help="classes, or their first words: gemm-small, softmax")
    parser.add_argument("--out", metavar="PREFIX", help="write PREFIX.md and keep PREFIX-*.csv")
    parser.add_argument("--resume", action="store_true",
                        help="continue the interrupted run of --out")
    parser.add_argument("--csv", metavar="FILE", nargs="+", help="only summarise these files")
    who = (sides.DEVICE if "--opencl" in words else
           sides.LOW_PRECISION if "--low-precision" in words else sides.CPU)
    parser.add_argument("--machine", choices=tuple(who.machines),
                        help="the machine with the goals; default: from the CPU or device")
    parser.add_argument("--rooflane", metavar="PROGRAM", type=Path,
                        default=PROGRAM,
                        help="use this program instead of building one")
    given = parser.parse_args(words)
    given.sides = who
    if given.opencl and given.low_precision:
        parser.error("--low-precision is of speed_vs_peers.sh")
    if given.cl_device is not None and not given.opencl:
        parser.error("--cl-device is of opencl_vs_peers.sh")
    if given.resume and not given.out:
        parser.error("--resume needs --out PREFIX: the files of the interrupted run")
    if given.csv and (given.resume or given.threads or given.launches
                      or given.random or given.level != "default"):
        parser.error("--csv measures nothing: no --quick, --full, --threads, --launches, --random "
                     "or --resume with it")
    if given.random < 0:
        parser.error("--random N: at least 1")
    return given


class NoDevice(Exception):
    """This machine has no GPU for OpenCL."""


def random_shapes(given: argparse.Namespace) -> dict[str, list[str]]:
    """Class -> random problems, the same from the same seed. Rows that were measured before name
    theirs. Raises Refused."""
    shapes: dict[str, list[str]] = {}
    drawn = goals.read_drawn(data_of(given, "shapes.txt"))
    for name, templates in drawn.items():
        lines = [line for number, template in enumerate(templates)
                 for line in goals.draw(template, given.random, f"{given.seed} {name} {number}")]
        if lines or given.csv:
            shapes[f"{name}-random"] = lines
    if given.low_precision:  # float32 is of the other classes
        return shapes
    if given.csv:
        told = ask(given.rooflane.absolute(), "list")
        shapes |= {kernel["name"] + "-random": [] for kernel in told["kernels"]}
    if given.random:
        told = ask(given.rooflane.absolute(), "list", "--preset",
                   f"random:{given.random}:{given.seed}")
        for problem in told["problems"]:
            shapes.setdefault(problem["text"].split(":")[0] + "-random", []).append(problem["text"])
    return shapes


def device_of(given: argparse.Namespace) -> tuple[str, ...]:
    """The arguments that choose the device: as told, else the first GPU. Raises NoDevice."""
    if not given.opencl:
        return ()
    if given.cl_device is not None:
        return ("--cl-device", str(given.cl_device))
    backends = ask(given.rooflane.absolute(), "doctor")["device_backends"]
    devices = [device for backend in backends for device in backend["devices"]]
    for device in devices:
        if device["kind"] == "GPU":
            return ("--cl-device", str(device["index"]))
    others = "; ".join(f"{device['index']} {device['kind']} {device['name']}" for device in devices)
    raise NoDevice(f"OpenCL sees no GPU on this machine (devices: {others or 'none'}); the goals "
                   "are of a GPU. `rooflane doctor` says what is missing; --cl-device I measures "
                   "another device all the same")


def text_of(given: argparse.Namespace, measured: results.Measured, classes: list[str],
            absent: dict[str, str]) -> tuple[str, str]:
    """The tables to print, and what only --out holds."""
    who = given.sides
    targets = goals.read_targets(data_of(given, "targets.txt"), who.machines)
    # Those that were drawn have the goals of their class.
    drawn = goals.read_drawn(data_of(given, "shapes.txt"))
    targets |= {f"{name}-random": targets[name] for name in drawn}
    machine = given.machine or goals.machine_of(measured.problems[0].machine, who.machines)
    judge = judging.judge_each if given.opencl else judging.judge
    verdicts = judge(measured, targets, machine, classes)
    peers = table.peers(measured.problems, who, absent)
    if given.opencl:
        return table.each_problem(verdicts, who, machine) + peers, ""
    text = table.overview(verdicts, who, machine) + table.listed_and_random(verdicts) + peers
    return text, table.every_problem(verdicts)


def data_of(given: argparse.Namespace, name: str) -> Path:
    """A file of bench/targets."""
    return DATA / (given.sides.data + name)


def main(words: list[str]) -> int:
    """From arguments to the table."""
    given = arguments_of(words)
    name = "opencl_vs_peers" if given.opencl else "speed_vs_peers"
    try:
        shapes = goals.read_shapes(data_of(given, "shapes.txt"), given.level)
        shapes |= random_shapes(given)
        settings = goals.read_settings(data_of(given, "shapes.txt"))
        settings |= {name: settings[name.removesuffix("-random")] for name in shapes
                     if name.removesuffix("-random") in settings}
        maths = {name: setting.math for name, setting in settings.items()}
        classes = goals.chosen(given.classes, shapes)
        if given.out:
            Path(given.out).absolute().parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            # A pattern such as mine-*.csv also names samples, which are read beside their rows, and
            # phases.
            files = [file for file in given.csv or []
                     if not file.endswith((".samples.csv", ".phases.csv"))]
            absent: dict[str, str] = {}
            if given.csv and not files:
                raise goals.InputError(f"{given.csv[0]}: samples; the rows' CSV is needed")
            if not files:
                prefix = Path(given.out).absolute() if given.out else Path(folder) / "rows"
                request = measuring.Request(
                    given.sides, {chosen: shapes[chosen] for chosen in classes}, settings,
                    given.level,
                    given.threads, given.launches, given.resume, device_of(given))
                files, absent = measuring.measure(given.rooflane, request, Path(folder), prefix)
            read = results.read(given.rooflane.absolute(), files, given.sides, maths)
            measured = results.Measured([problem for problem in read.problems
                                         if problem.name in classes], read.means)
        if not measured.problems:
            raise goals.InputError(f"no row of a class of {data_of(given, 'shapes.txt')} in "
                                   + ", ".join(map(str, files)))
        text, more = text_of(given, measured, classes, absent)
        print(text, end="")
        if given.out:
            Path(f"{given.out}.md").write_text(text + more, encoding="utf-8")
    except (goals.InputError, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except NoDevice as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 3
    except (measuring.BenchFailed, Refused) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.status
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        os._exit(130)

#!/usr/bin/env python3
"""Which tests arm.sh runs in a build folder for aarch64, and what they need built.

    arm_tests.py FOLDER              names of tests, a line each
    arm_tests.py FOLDER --targets    what Ninja has to build for them
    arm_tests.py FOLDER --in-part    tests that run without some of their cases: NAME CASES WHY
    arm_tests.py ... --alone         without those that start programs built for aarch64

All tests that are compiled, but for those that measure, and of those in Python the ones that call
the program without measuring or fetching packages. Python's standard library only.
"""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

MEASURING = ("bench", "calibrate", "ceilings")
# Cases of the other compiled tests that emulation cannot run, as doctest's patterns, and why.
IN_PART = {
    "cblas": ("*core type*,a cache that cannot be written*", "they measure: 3 GFLOP each"),
    "exp": ("*all floats*", "2^32 values; arm_kernels.cpp tries a part"),
    "thread_pool": ("*forked child*,a process ends while regions run*,threads that are bound*",
                    "qemu-user 7 aborts where a fork of several threads starts another"),
}
# The rest in Python measures (and an emulator's speed, which changes, makes rows faster than their
# ceilings), calls packages from PyPI, or never starts what was compiled. Plugins that crash make
# qemu print a line of its own, which foreign-plugins does not expect.
IN_PYTHON = ("c-symbols", "cli", "generate-ids", "generate-refusals", "model-cli", "skip")
STARTS_ITSELF = ("doctor", "verify")  # they start themselves; meson's list does not show it


def introspect(folder: Path, what: str) -> list[dict[str, Any]]:
    done = subprocess.run(["meson", "introspect", f"--{what}", str(folder)], check=True,
                          capture_output=True, text=True)
    listed: list[dict[str, Any]] = json.loads(done.stdout)
    return listed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=lambda text: Path(text).resolve())
    parser.add_argument("--targets", action="store_true")
    parser.add_argument("--in-part", action="store_true")
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    tests = {test["name"]: test for test in introspect(options.folder, "tests")}
    unknown = {*MEASURING, *IN_PART, *IN_PYTHON, *STARTS_ITSELF} - tests.keys()
    if unknown:
        sys.exit(f"arm_tests: no test of {options.folder} is called {', '.join(sorted(unknown))}")
    files = {target["id"]: target["filename"] for target in introspect(options.folder, "targets")}

    def is_compiled(test: dict[str, Any]) -> bool:
        return Path(test["cmd"][0]).is_relative_to(options.folder)

    def starts_programs(test: dict[str, Any]) -> bool:
        built = {Path(name).name for target in test["depends"] for name in files[target]}
        return (not is_compiled(test) or test["name"] in STARTS_ITSELF
                or "rooflane-fake" in built)

    chosen = [test for test in tests.values()
              if (is_compiled(test) or test["name"] in IN_PYTHON)
              and test["name"] not in MEASURING
              and not (options.alone and starts_programs(test))]
    if options.in_part:
        for name, (cases, reason) in IN_PART.items():
            print(name, cases, reason, sep="\t")
        return
    if not options.targets:
        print(*(test["name"] for test in chosen if test["name"] not in IN_PART), sep="\n")
        return
    needed = {name for test in chosen for target in test["depends"] for name in files[target]}
    needed.add(str(options.folder / "rooflane"))
    print(*sorted(str(Path(name).relative_to(options.folder)) for name in needed), sep="\n")


if __name__ == "__main__":
    main()

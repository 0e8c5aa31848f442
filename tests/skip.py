#!/usr/bin/env python3
"""How tests say that they lack a device or a package; what skip.hpp is for programs of doctest.

`skip.main()` stands for `unittest.main()`. A test of the program calls
`self.skipTest(skip.reason("what is missing", "packages to install"))`; the program then says what
was skipped, closes with `cases: N passed, N failed, N skipped`, which scripts/count_tests.py adds
up, and ends with 77 when nothing else ran. `skip.everything` ends a program that cannot begin, and
so does `skip.py WHAT_IS_MISSING [PACKAGES]` on the command line.
"""
from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path
from typing import NoReturn

SKIPPED = 77  # Meson's, and automake's before it


def reason(missing: str, packages: str = "") -> str:
    """`packages` are Debian's, or `from PyPI: NAMES`; empty where none helps."""
    return f"{missing}; install {packages}" if packages else missing


def no_device(rooflane: str | Path, env: dict[str, str] | None = None) -> str:
    """Why this program has no OpenCL device, and what to install; empty where it has one."""
    listed = subprocess.run([rooflane, "list", "--json"], capture_output=True, text=True,
                            check=True, env=env).stdout
    opencl = next(variant for variant in json.loads(listed)["kernels"][0]["variants"]
                  if variant["name"] == "opencl")
    if opencl["available"]:
        return ""
    is_bare = opencl["reason"].startswith("no OpenCL device: install")
    return reason("no OpenCL device", "pocl-opencl-icd") if is_bare else opencl["reason"]


def no_packages(status: int, output: str) -> str:
    """Why a program of ours could not get its packages from PyPI: a line of the output of one that
    ended with status 3. Empty where it got them or wanted none."""
    told = [line for line in output.splitlines() if "PyPI cannot be reached" in line]
    return told[-1] if status == 3 and told else ""


def has_terminals() -> bool:
    """Whether a program can be given a terminal; a chroot without /dev/pts has none."""
    try:
        for end in os.openpty():
            os.close(end)
    except OSError:
        return False
    return True


def everything(missing: str, packages: str = "") -> NoReturn:
    print(f"skipped: 1 case: {reason(missing, packages)}")
    sys.exit(SKIPPED)


class _Result(unittest.TextTestResult):
    """Counts the tests that passed, which unittest itself does not; some subtests of a test may be
    skipped."""

    passed = 0

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        if test not in self.broken() and all(test is not other for other, _ in self.skipped):
            self.passed += 1

    def broken(self) -> set[object]:
        """Tests that failed: several subtests of one may, and what fails in setUpClass is none."""
        return {getattr(test, "test_case", test) for test, _ in self.failures + self.errors}


def main(argv: list[str], verbosity: int = 2) -> NoReturn:
    """Runs the calling program's tests: all, or those that `argv` names behind the program."""
    runner = unittest.TextTestRunner(resultclass=_Result, verbosity=verbosity)
    result = unittest.main(argv=argv, testRunner=runner, exit=False).result
    reasons = collections.Counter((hasattr(test, "test_case"), why) for test, why in result.skipped)
    for (is_part, why), count in reasons.items():
        print(f"skipped: {'parts of ' if is_part else ''}{count} case{'s' * (count > 1)}: {why}")
    print(f"cases: {result.passed} passed, {len(result.broken())} failed, "
          f"{len(result.skipped)} skipped")
    if not result.wasSuccessful():
        sys.exit(1)
    if result.passed:
        sys.exit(0)
    if result.skipped:
        sys.exit(SKIPPED)
    print("no case ran", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    everything(*sys.argv[1:3])

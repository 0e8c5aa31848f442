"""Closes a run of `meson test`: what was skipped, why and what to install, then as the last line
`N passed, N failed`, with `, N skipped` where something was; exit status 1 when something failed.

A test that prints `cases: N passed, N failed, N skipped` (tests/main.cpp, tests/skip.py) counts as
so many, every other test as one. It prints what it lacks:
`skipped: N cases: WHAT IS MISSING; install PACKAGES`. Used by test.sh:
count_tests.py TESTLOG.json STATUS_OF_MESON_TEST [CHECK=STATUS...]
"""
from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from script_help import answer_help

CASES = re.compile(r"^cases: (\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)
SKIPPED = re.compile(r"^skipped: (?:parts of )?(\d+) cases?: (.*?)(?:; install (.*))?$",
                     re.MULTILINE)
HEADING = ("skipped", "why", "install", "tests")


@dataclass
class Skips:
    """All that was skipped for one reason."""

    count: int = 0
    tests: list[str] = field(default_factory=list)

    def add(self, count: int, test: str) -> None:
        self.count += count
        if test not in self.tests:
            self.tests.append(test)


@dataclass
class Totals:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    reasons: dict[tuple[str, str], Skips] = field(default_factory=dict)  # by why and packages

    def add(self, test: dict) -> None:
        """Counts one line of testlog.json."""
        output = re.sub(r"\x1b\[[0-9;]*m", "", test.get("stdout") or "")
        told = SKIPPED.findall(output)
        skip = test["result"] == "SKIP"
        for count, why, packages in told or ([("1", "it does not say", "")] if skip else []):
            self.reasons.setdefault((why, packages), Skips()).add(int(count), test["name"])
        good = test["result"] in ("OK", "EXPECTEDFAIL")
        if closing := CASES.search(output):
            passed, failed, skipped = map(int, closing.groups())
            self.passed += passed
            self.skipped += skipped
            # A crash or a time limit fails the test whatever its cases said.
            self.failed += failed if good or skip else max(1, failed)
        elif skip:
            self.skipped += 1
        else:
            self.passed += good
            self.failed += not good


def table(reasons: dict[tuple[str, str], Skips]) -> Iterable[str]:
    """The lines of the table of skipped tests, the most frequent reason first."""
    rows = [HEADING] + [
        (str(skips.count), why, packages, ", ".join(skips.tests))
        for (why, packages), skips in sorted(reasons.items(), key=lambda item: -item[1].count)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
    debian = sorted({package for _, packages in reasons if not packages.startswith("from PyPI")
                     for package in packages.split()})
    if debian:
        yield f"To run them: apt-get install {' '.join(debian)}"
    if any(package.endswith(("-dev", "-headers")) for package in debian):
        yield "The build looks for them once: rm -r build"


def main() -> int:
    answer_help()
    log = Path(sys.argv[1])
    totals = Totals()
    for line in log.read_text().splitlines() if log.exists() else []:
        totals.add(json.loads(line))
    if int(sys.argv[2]) != 0 or totals.passed == 0:  # a run without tests proves nothing
        totals.failed = max(1, totals.failed)
    for check in sys.argv[3:]:
        name, status = check.split("=")
        if int(status) != 0:
            print(f"{name} failed: see above")
        totals.passed += int(status) == 0
        totals.failed += int(status) != 0
    for line in table(totals.reasons) if totals.reasons else []:
        print(line)
    skipped = f", {totals.skipped} skipped" if totals.skipped else ""
    print(f"{totals.passed} passed, {totals.failed} failed{skipped}")
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())

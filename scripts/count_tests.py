"""Closes a run of `meson test` with one line, `N passed, N failed`, and the exit status.

Counts doctest's cases where a test printed their number, and one for every other test. A test that
was skipped counts as neither. Used by test.sh: count_tests.py TESTLOG.json STATUS_OF_MESON_TEST.
"""

import json
import pathlib
import re
import sys

CASES = re.compile(r"\[doctest\] test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed")


def count(log: pathlib.Path) -> tuple[int, int, list[str]]:
    """Passed, failed, and the names of the tests that were skipped."""
    passed = failed = 0
    skipped = []
    for line in log.read_text().splitlines() if log.exists() else []:
        test = json.loads(line)
        if test["result"] == "SKIP":
            skipped.append(test["name"])
            continue
        good = test["result"] in ("OK", "EXPECTEDFAIL")
        output = re.sub(r"\x1b\[[0-9;]*m", "", test.get("stdout") or "")
        cases = CASES.findall(output)
        if cases:
            passed += sum(int(case[0]) for case in cases)
            failed_cases = sum(int(case[1]) for case in cases)
            # A crash or a time limit fails the test whatever its cases said.
            failed += failed_cases if good else max(1, failed_cases)
        else:
            passed += good
            failed += not good
    return passed, failed, skipped


def main() -> int:
    passed, failed, skipped = count(pathlib.Path(sys.argv[1]))
    if int(sys.argv[2]) != 0 or passed == 0:  # a run without tests proves nothing
        failed = max(1, failed)
    if skipped:
        print(f"skipped: {', '.join(skipped)}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

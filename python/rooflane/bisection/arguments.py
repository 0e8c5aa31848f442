"""The command line of `rooflane bisect`. Standard library only."""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

SUMMARY = "finds the commit that made a kernel slower or faster"
EXAMPLES = """\
Examples:
  rooflane bisect v1..HEAD --shape softmax:rows=512,cols=2048
  rooflane bisect 1a2b3c4..main --shape gemm:m=n=k=512 --threads 1 --max-time 2
  rooflane bisect old..new -k layernorm --preset rows -v hwy --build ./make-it.sh

Exit status: 0 a commit was found, or the two ends are equally fast; 1 undecided, or a commit could
not be built; 2 wrong arguments; 3 a request that cannot be served here."""


def arguments_of(words: Sequence[str]) -> argparse.Namespace:
    """Reads the command line; exits with 2 if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="rooflane bisect", allow_abbrev=False, description=SUMMARY, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("range", metavar="GOOD..BAD",
                        help="two commits; GOOD is an ancestor of BAD")
    parser.add_argument("--shape", metavar="SHAPE", action="append", default=[],
                        help="the problem to time, as `bench --shape` takes it; repeatable")
    parser.add_argument("--preset", metavar="NAME|FILE", action="append", default=[],
                        help="a list of shapes; repeatable")
    parser.add_argument("-k", "--kernel", metavar="K", help="kernel; default: that of the shapes")
    parser.add_argument("-v", "--variant", metavar="V", default="hwy",
                        help="the variant to time; default: hwy")
    parser.add_argument("--threads", metavar="N", default="1",
                        help="number of threads; default: 1")
    parser.add_argument("--max-time", metavar="SECONDS", type=float, default=1.0,
                        help="for the rounds of a problem; doubled twice while a comparison is "
                             "UNSURE; default: 1")
    parser.add_argument("--repository", metavar="DIR", type=Path, default=Path.cwd(),
                        help="a checkout of the project; default: the current folder")
    parser.add_argument("--build", metavar="CMD",
                        help="shell command that builds build/rooflane in a checkout of a commit; "
                             "default: Meson and Ninja, for this machine's instruction set")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    given = parser.parse_args(words)
    ends = given.range.split("..")
    if len(ends) != 2 or not all(ends) or ends[1].startswith("."):
        parser.error(f"'{given.range}': two commits are needed, GOOD..BAD")
    given.good, given.bad = ends
    if not given.shape and not given.preset:
        parser.error("--shape or --preset is needed: what is to be timed")
    if not 0 < given.max_time < 1e6:
        parser.error("--max-time: allowed are numbers above 0")
    return given

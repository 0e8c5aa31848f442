#!/usr/bin/env python3
"""Results as pages: report.py CSV... [--html FILE] [--svg FILE] [--readme FILE].

Reads what `rooflane bench --csv` wrote, with X.json and X.csv.samples.csv beside X.csv where they
exist. --html is one page that opens offline, --svg its roofline, --readme a page of Markdown about
one machine. What is compared with what, and every ratio, is asked of `rooflane roofline --json`.
This file needs the standard library only; the charts (report_page/) are drawn in an environment
with Altair and vl-convert that it makes from PyPI at the first call.

Exit status: 0 good, 2 wrong arguments or input, 3 the environment or the program is not to be had.
"""
from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
sys.path.insert(0, str(SCRIPTS))

from python_environment import Unavailable, with_packages  # noqa: E402
from report_page import readme, results  # noqa: E402
from rooflane_json import PROGRAM, Refused  # noqa: E402

PACKAGES = ["altair==6.3.0", "vl-convert-python==1.9.0.post1"]


def main() -> int:
    """Checks the input, then writes what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv", nargs="+", metavar="CSV", help="file of `rooflane bench --csv`")
    parser.add_argument("--html", metavar="FILE", help="HTML page to write")
    parser.add_argument("--svg", metavar="FILE", help="roofline picture to write")
    parser.add_argument("--readme", metavar="FILE",
                        help="Markdown page about one machine to write")
    parser.add_argument("--rooflane", metavar="PROGRAM", type=Path, default=PROGRAM,
                        help="the program that computes the ratios; default: build/rooflane")
    arguments = parser.parse_args()
    targets = [arguments.html, arguments.svg, arguments.readme]
    if not any(targets):
        print("report.py: --html FILE, --svg FILE or --readme FILE is needed", file=sys.stderr)
        return 2
    try:
        for target in filter(None, targets):
            if not Path(target).resolve().parent.is_dir():
                raise results.InputError(f"{target}: no such folder")
        program = arguments.rooflane.absolute()
        # Samples are left alone, so that anyone who has the CSV and the JSON beside it makes the
        # same page again.
        machines = results.read_all(program, arguments.csv, "--without-samples")
        if arguments.html or arguments.svg:
            if status := draw(arguments):
                return status
        if arguments.readme:  # after the picture, which the page shows
            text = readme.document(machines, [Path(name) for name in arguments.csv])
            Path(arguments.readme).write_text(text, encoding="utf-8")
    except (results.InputError, OSError) as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 2
    except (Unavailable, Refused) as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 3
    return 0


def draw(arguments: argparse.Namespace) -> int:
    """Writes page and picture in the environment that can draw. Raises Unavailable."""
    python = with_packages("report", PACKAGES)
    command = [str(python), "-m", "report_page", "--rooflane", str(arguments.rooflane.absolute()),
               *(str(Path(p).resolve()) for p in arguments.csv)]
    for option in ("html", "svg"):
        if path := getattr(arguments, option):
            command += [f"--{option}", str(Path(path).resolve())]
    return subprocess.run(command, cwd=SCRIPTS, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

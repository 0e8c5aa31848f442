"""Draws page and picture; report.py calls this inside the environment that has Altair."""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

from report_page import page, results, roofline


def main() -> int:
    """Writes the files asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("csv", nargs="+")
    parser.add_argument("--rooflane", type=Path)
    parser.add_argument("--html")
    parser.add_argument("--svg")
    arguments = parser.parse_args()
    try:
        machines = results.read_all(arguments.rooflane, arguments.csv)
        if arguments.html:
            Path(arguments.html).write_text(page.document(machines), encoding="utf-8")
        if arguments.svg:
            Path(arguments.svg).write_text(roofline.picture(machines), encoding="utf-8")
    except (results.InputError, OSError) as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

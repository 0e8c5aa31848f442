#!/usr/bin/env python3
"""Measures every model and writes rows.csv, swaps.csv, README.md and models.svg.

  models.py [--quick] [--models NAME,...] [--threads N] [--out FOLDER] [--rooflane PROGRAM]

The folder is results/MACHINE/models unless --out names another. --quick takes the tiny sizes and
hardly any time: to see that everything works. Ceilings are measured once for all models. Standard
library only. Exit status: 0 all measured, 1 some failed, 2 wrong arguments.
"""
from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
sys.path[:0] = [str(SCRIPTS), str(SCRIPTS.parent / "python")]

from models_table import picture, runs, tables  # noqa: E402
from rooflane_json import PROGRAM  # noqa: E402


def write_csv(path: Path, rows: list[runs.Cells]) -> None:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def chosen(names: str | None) -> list[runs.Run]:
    known = list(dict.fromkeys(run.model for run in runs.RUNS))
    wanted = names.split(",") if names else known
    for name in wanted:
        if name not in known:
            print(f"models.py: unknown model '{name}'; valid: {', '.join(known)}",
                  file=sys.stderr)
            sys.exit(2)
    return [run for run in runs.RUNS if run.model in wanted]


def folder_of(out: str | None, program: Path) -> Path:
    if out:
        folder = Path(out)
    else:
        slug = subprocess.run([str(program), "doctor", "--slug"], capture_output=True, text=True,
                              check=True).stdout.strip()
        folder = SCRIPTS.parent / "results" / slug / "models"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes, little time")
    parser.add_argument("--models", metavar="NAME,...", help="default: all")
    parser.add_argument("--threads", metavar="N", help="default: all physical cores")
    parser.add_argument("--out", metavar="FOLDER", help="default: results/MACHINE/models")
    parser.add_argument("--rooflane", metavar="PROGRAM", type=Path, default=PROGRAM)
    arguments = parser.parse_args()
    program = arguments.rooflane.absolute()
    options = ["--threads", arguments.threads] if arguments.threads else []
    todo = chosen(arguments.models)
    folder = folder_of(arguments.out, program)
    begun = time.monotonic()
    results: list[runs.Result] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        ceilings = Path(temporary) / "ceilings.json"
        seconds = "0.5" if arguments.quick else "15"
        subprocess.run([str(program), "ceilings", "--seconds", seconds, "--json", str(ceilings)],
                       stdout=subprocess.DEVNULL, check=True)
        for number, run in enumerate(todo, 1):
            print(f"[{number}/{len(todo)}, {time.monotonic() - begun:.0f} s] {run.name}",
                  file=sys.stderr, flush=True)
            try:
                results.append(runs.measure(run, program, Path(temporary), arguments.quick,
                                            options))
                print(results[-1].output, flush=True)
            except runs.Failed as error:
                failed.append(str(error))
                print(f"models.py: {error}", file=sys.stderr)
    if results:
        write_csv(folder / "rows.csv", [row for result in results for row in result.rows])
        write_csv(folder / "swaps.csv",
                  [proof for result in results for proof in result.proofs])
        (folder / "README.md").write_text(tables.document(results, failed), encoding="utf-8")
        (folder / "models.svg").write_text(picture.picture(results), encoding="utf-8")
        print(tables.verdict(results))
        print(f"written: {folder} in {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

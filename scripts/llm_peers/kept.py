"""The table of formats in a folder of results/: formats.json, in which a run replaces the rows that
it measured again, and README.md, which is written from it.
"""
from __future__ import annotations

import json
import subprocess
import time
from dataclasses import asdict
from pathlib import Path

from llm_peers import speed

FILE = "formats.json"


def _stamp(program: Path) -> dict[str, str]:
    """What was measured, where and when."""
    told = subprocess.run([program, "doctor", "--json"], check=True, stdout=subprocess.PIPE)
    facts = json.loads(told.stdout)
    return {"cpu": facts["machine"]["cpu"], "slug": facts["slug"], "commit": facts["build_commit"],
            "date": time.strftime("%Y-%m-%d", time.gmtime())}


def _key(row: speed.Rounds) -> tuple[str, int, str, int]:
    return row.model, row.threads, row.name, row.depth


def _range(values: set[str]) -> str:
    ordered = sorted(values)
    return " to ".join(dict.fromkeys([ordered[0], ordered[-1]]))


def _page(rows: list[speed.Rounds], order: list[str]) -> str:
    rows.sort(key=lambda row: (order.index(row.model), row.threads))
    stamp = rows[0].stamp
    commits = ", ".join(sorted({row.stamp["commit"] for row in rows}))
    rounds = _range({str(len(row.ours)) for row in rows})
    return "\n".join([
        f"# SmolLM2-135M on {stamp['cpu']} ({stamp['slug']})", "",
        f"Measured {_range({row.stamp['date'] for row in rows})} by "
        f"`scripts/llm_compare.py formats`, commit {commits}. Rounds of a format and a number of "
        f"threads, in which all programs are measured: {rounds}. docs/generate.md explains the "
        "columns.", "", speed.table(rows), ""])


def keep(folder: Path, program: Path, measured: list[speed.Rounds], order: list[str]) -> None:
    """Adds rows to those of the folder, instead of older ones of the same test."""
    stamp = _stamp(program)
    for row in measured:
        row.stamp = stamp
    file = folder / FILE
    folder.mkdir(parents=True, exist_ok=True)
    known = [speed.Rounds(**row) for row in json.loads(file.read_text())] if file.exists() else []
    again = {_key(row) for row in measured}
    rows = [row for row in known if _key(row) not in again] + measured
    page = _page(rows, order)
    file.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(page, encoding="utf-8")

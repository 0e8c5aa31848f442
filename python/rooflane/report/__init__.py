"""Reports of a tuning run: write() makes report.txt and report.html in a folder. sections.py puts
together what they say, html.py sets the page."""
from __future__ import annotations

from pathlib import Path

from rooflane import files
from rooflane.archive.redaction import redact
from rooflane.archive.tables import CONTROL, table
from rooflane.report.run import Run
from rooflane.report.sections import Table, tables

__all__ = ["Run", "render_text", "write"]


def write(folder: Path, run: Run) -> None:
    """Writes both files, each whole or not at all; makes the folder. Raises OSError."""
    from rooflane.report.html import render_html
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("report.txt", render_text(run)), ("report.html", render_html(run))):
        files.replace(folder / name, redact(content), errors="replace")


def render_text(run: Run) -> str:
    """The report as text."""
    return "\n".join(map(_rendered, tables(run)))


def _rendered(made: Table) -> str:
    told = table(made.head, made.rows) if made.rows else made.empty + "\n"
    told += "".join(CONTROL.sub(" ", note) + "\n" for note in made.notes if made.rows)
    return (f"{made.name}\n{'-' * len(made.name)}\n"
            + "".join(f"  {line}\n" for line in told.splitlines() if line))

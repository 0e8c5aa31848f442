"""Reports of a tuning run: write() makes report.txt and report.html in a folder, render_text() the
text alone. What they say is put together in sections.py and impact.py."""
from __future__ import annotations

from pathlib import Path

from rooflane import files
from rooflane.archive.redaction import redact
from rooflane.report.run import Run
from rooflane.report.text import render_text

__all__ = ["Run", "render_text", "write"]


def write(folder: Path, run: Run) -> None:
    """Writes both files, each whole or not at all; makes the folder. Raises OSError."""
    from rooflane.report.html import render_html
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("report.txt", render_text(run)), ("report.html", render_html(run))):
        files.replace(folder / name, redact(content), errors="replace")

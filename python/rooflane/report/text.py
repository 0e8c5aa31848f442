"""The report as text, for terminals and report.txt."""
from __future__ import annotations

import re

from rooflane.report.run import Run
from rooflane.report.sections import Table, tables

# What a terminal would act on; reasons and answers are other programs' text.
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
INDENT = "  "


def render_text(run: Run) -> str:
    """The whole report."""
    return "\n".join(_rendered(table) for table in tables(run))


def _rendered(table: Table) -> str:
    lines = [table.name, "-" * len(table.name)]
    rows = [[CONTROL.sub(" ", cell).replace("\n", " ") for cell in row]
            for row in ([table.head] if table.head and table.rows else []) + table.rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] \
        if rows else []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths)]
        lines.append((INDENT + "  ".join(cells)).rstrip())
    if not table.rows and table.empty:
        lines.append(INDENT + table.empty)
    lines += [INDENT + CONTROL.sub(" ", note) for note in table.notes if table.rows]
    return "\n".join(lines) + "\n"

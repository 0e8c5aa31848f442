"""The report as one page that opens offline: no script, nothing loaded, all text escaped."""
from __future__ import annotations

from rooflane import drawing
from rooflane.archive.tables import by
from rooflane.drawing import esc
from rooflane.report.run import Run, times
from rooflane.report.sections import Table, tables
from rooflane.tuning import Trial, text_of

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
# The colours and cards of scripts/report_page/page.py.
STYLE = """
:root{color-scheme:light dark;--ink:#1f2933;--soft:#5b6570;--paper:#f6f7f9;--card:#fff;
--line:#dde2e7}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ec;--soft:#9aa6b2;--paper:#15191e;--card:#1d232a;
--line:#323a44}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main,header{max-width:1200px;margin:auto;padding:0 1.2rem}h1{margin:1.4rem 0 .2rem}
h2{margin:2rem 0 .6rem}nav a{margin-right:1rem}a{color:inherit}
.soft{color:var(--soft)}.speed{font-size:1.5rem;font-weight:600}
figure,.card{margin:0 0 1rem;padding:.9rem;background:var(--card);border:1px solid var(--line);
border-radius:8px;overflow-x:auto}
figcaption{font-weight:600;margin-bottom:.5rem;position:sticky;left:0}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr));gap:1rem}
svg{max-width:100%;height:auto;min-width:480px}
.scroll{overflow:auto;max-height:75vh;background:var(--card);border:1px solid var(--line);
border-radius:8px;width:fit-content;max-width:100%}
table{border-collapse:collapse;font-size:13px}
td,th{padding:.3rem .7rem;text-align:left;border-bottom:1px solid var(--line);vertical-align:top;
overflow-wrap:break-word;max-width:44rem}
tr:last-child td{border-bottom:0}th{position:sticky;top:0;background:var(--card);white-space:nowrap}
td{font-variant-numeric:tabular-nums}tr.bad td{color:#c2410c}
@media(prefers-color-scheme:dark){tr.bad td{color:#fb923c}}
dl{display:grid;grid-template-columns:fit-content(40%) minmax(0,1fr);gap:.15rem 1.2rem;margin:0}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:12px;max-height:30rem;overflow:auto;
border-left:3px solid var(--line);padding-left:.7rem}summary{cursor:pointer}
"""


def render_html(run: Run) -> str:
    """The whole page."""
    made = tables(run)
    links = "".join(f'<a href="#s{at}">{esc(table.name)}</a> ' for at, table in enumerate(made)
                    if not table.name.startswith("Requests"))
    parts = []
    for at, table in enumerate(made):
        parts.append(f'<h2 id="s{at}">{esc(table.name)}</h2>')
        if table.name == "Convergence":
            parts.append(_convergence(run))
        parts.append(_definitions(table) if not any(table.head) else _table(table))
    if run.exchanges:
        parts.append(_exchanges(run))
    parts.append(_attempts(run))
    speed = f'<p class="speed">{esc(times(run.ratio))} the default</p>' if run.ratio else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>Tuning of {esc(run.space.title)}</title><style>{STYLE}</style></head><body>
<header><h1>Tuning of {esc(run.space.title)}</h1>{speed}
<nav>{links}<a href="#all">All attempts</a></nav></header><main>
{"".join(parts)}</main></body></html>
"""


def _definitions(table: Table) -> str:
    entries = "".join(f"<dt>{esc(name)}</dt><dd>{esc(value)}</dd>" for name, value in table.rows)
    return f'<div class="card"><dl>{entries}</dl></div>'


def _table(table: Table) -> str:
    if not table.rows:
        return f'<p class="soft">{esc(table.empty)}</p>'
    return _grid(table.head, [(row, False) for row in table.rows]) + "".join(
        f'<p class="soft">{esc(note)}</p>' for note in table.notes)


def _grid(head: list[str], rows: list[tuple[list[str], bool]]) -> str:
    titles = "".join(f"<th scope=col>{esc(title)}</th>" for title in head)
    lines = "".join(f'<tr{" class=bad" if is_bad else ""}>'
                    + "".join(f"<td>{esc(cell)}</td>" for cell in row) + "</tr>"
                    for row, is_bad in rows)
    return (f'<div class="scroll"><table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody>'
            "</table></div>")


def _convergence(run: Run) -> str:
    """Two pictures of the same: by attempt and by time."""
    ends, elapsed = [], 0.0
    for trial in run.trials:
        elapsed += trial.cost.total
        ends.append(elapsed)
    numbers = [float(trial.number) for trial in run.trials]
    figures = []
    for places, label in ((numbers, "attempt"), (ends, "seconds")):
        drawn = drawing.lines(_series(run, places), f"best so far by {label}", label,
                              "speed-up over the default", rules=[(1.0, "default")])
        name = "attempt" if label == "attempt" else "time"
        figures.append(f"<figure><figcaption>Best so far, by {name}</figcaption>{drawn}</figure>")
    return f'<div class="pair">{"".join(figures)}</div>'


def _series(run: Run, places: list[float]) -> list[drawing.Series]:
    pairs = list(zip(run.trials, places))
    correct = [(trial, place) for trial, place in pairs if trial.correct]
    failed = [(trial, place) for trial, place in pairs if not trial.correct]
    line: list[tuple[float, float]] = []
    for trial, place in correct:
        line.append((place, max(trial.speed_up, line[-1][1] if line else 0)))
    if line:
        line.append((places[-1], line[-1][1]))
    bottom = min([1.0, *(trial.speed_up for trial, _ in correct)])
    return [
        drawing.Series("best so far", line, drawing.COLOURS[0], step=True),
        drawing.Series("correct", [(place, trial.speed_up) for trial, place in correct],
                       drawing.COLOURS[2], joined=False,
                       tips=[_tip(trial) for trial, _ in correct]),
        drawing.Series("failed", [(place, bottom) for _, place in failed], drawing.COLOURS[1],
                       joined=False, tips=[_tip(trial) for trial, _ in failed])]


def _tip(trial: Trial) -> str:
    told = times(trial.ratio) if trial.correct else f"{trial.outcome.value}: {trial.reason}"
    return f"attempt {trial.number}, {by(trial)}: {text_of(trial.configuration)}\n{told}"


def _exchanges(run: Run) -> str:
    """Requests and answers in full, folded."""
    parts = []
    for exchange in run.exchanges:
        told = exchange.failure or f"{len(exchange.answer)} characters"
        parts.append(f"<details><summary>Request {exchange.number} to {esc(exchange.model)}: "
                     f"{esc(told)}</summary><p class=soft>asked</p><pre>{esc(exchange.request)}"
                     f"</pre><p class=soft>answered</p><pre>{esc(exchange.answer)}</pre></details>")
    return f'<div class="card">{"".join(parts)}</div>'


def _attempts(run: Run) -> str:
    head = ["attempt", "by", "configuration", "outcome", "speed-up", "seconds", "note, reason"]
    rows = [([str(trial.number), by(trial), text_of(trial.configuration), trial.outcome.value,
              times(trial.ratio), f"{trial.cost.total:.3g}",
              "; ".join(filter(None, (trial.note, trial.reason)))], not trial.correct)
            for trial in run.trials]
    return f'<h2 id="all">All attempts</h2>{_grid(head, rows)}'

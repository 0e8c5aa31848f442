"""The HTML of the report: one file, nothing loaded; first the answer, then the charts (charts.py),
then what else is known."""
from __future__ import annotations

import html
import json
from typing import Any

from report_page import charts
from report_page.results import Machine, Row, SizeClass
from rooflane_json import Figure

POLICY = ("default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; "
          "style-src 'unsafe-inline'; img-src data:")

STYLE = """
:root{color-scheme:light dark;--ink:#1f2933;--soft:#5b6570;--paper:#f6f7f9;--card:#fff;
--line:#dde2e7}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ec;--soft:#9aa6b2;--paper:#15191e;--card:#1d232a;
--line:#323a44}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main,header{max-width:1500px;margin:auto;padding:0 1.2rem}h1{margin:1.4rem 0 .2rem}
h2{margin:2rem 0 .6rem}h3{margin:.2rem 0;font-size:1rem}nav a{margin-right:1rem}a{color:inherit}
.machines{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,590px),1fr));gap:1rem}
.machine{min-width:0}figure,.card{margin:0 0 1rem;padding:.9rem;background:var(--card);
border:1px solid var(--line);border-radius:8px;min-width:0}
figure{overflow-x:auto}
figcaption{font-weight:600;margin-bottom:.5rem;position:sticky;left:0}
.chart{width:100%;min-width:560px}.vega-embed{display:flex!important;flex-direction:column}
.vega-bindings{order:-1;margin-bottom:.6rem}.soft{color:var(--soft)}
.scroll{overflow:auto;max-height:75vh;background:var(--card);border:1px solid var(--line)}
table{border-collapse:collapse;font-size:13px}td,th{padding:.25rem .6rem;text-align:left;
border-bottom:1px solid var(--line);white-space:pre;max-width:34rem;overflow:hidden;
text-overflow:ellipsis}td:hover{white-space:pre-wrap;overflow-wrap:anywhere}
th{position:sticky;top:0;background:var(--card);cursor:pointer}
tr.bad td{color:#c2410c}@media(prefers-color-scheme:dark){tr.bad td{color:#fb923c}}
dl{display:grid;grid-template-columns:fit-content(40%) minmax(0,1fr);gap:.1rem .9rem;
margin:.3rem 0 .8rem}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}ul{padding-left:1.2rem;margin:.3rem 0}
li{margin:.35rem 0;overflow-wrap:anywhere}code{font-size:.88em}summary{cursor:pointer}
.vega-bind-name{color:var(--soft);margin-right:.3rem}
select{font:inherit;color:inherit;background:var(--card);border:1px solid var(--line);
border-radius:6px;padding:.2rem .4rem;max-width:100%}
#filter{font:inherit;padding:.4rem .7rem;width:min(100%,28rem);margin-bottom:.6rem}
"""

SCRIPT = """
const dark = matchMedia('(prefers-color-scheme: dark)');
const specs = JSON.parse(document.getElementById('specs').textContent);
function draw() {
  const ink = dark.matches ? '#cbd3da' : '#3a4650', line = dark.matches ? '#323a44' : '#e6eaee';
  const paper = dark.matches ? '#1d232a' : '#fff';
  const config = {background: 'transparent', view: {stroke: line}, font: 'system-ui, sans-serif',
    axis: {labelColor: ink, titleColor: ink, gridColor: line, domainColor: line, tickColor: line},
    style: {halo: {stroke: paper, strokeWidth: 4, strokeJoin: 'round'}},
    legend: {labelColor: ink, titleColor: ink, symbolBaseFillColor: ink, symbolBaseStrokeColor: ink,
      layout: {bottom: {direction: 'vertical',
      anchor: 'start', margin: 6}}}};
  specs.forEach((spec, i) => vegaEmbed('#chart' + i, spec, {actions: false, config: config,
    tooltip: {theme: dark.matches ? 'dark' : 'light'}}));
}
draw();
dark.addEventListener('change', draw);
const table = document.getElementById('rows'), body = table.tBodies[0];
document.getElementById('filter').addEventListener('input', event => {
  const words = event.target.value.toLowerCase().split(/\\s+/).filter(Boolean);
  for (const row of body.rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every(word => text.includes(word));
  }
});
let sorted = -1, sign = 1;
function sort(column) {
  sign = sorted === column ? -sign : 1;
  sorted = column;
  const key = row => row.cells[column].textContent;
  [...body.rows].sort((a, b) => {
    const x = key(a), y = key(b);
    if (x === '' || y === '') return (x === '') - (y === '');
    const numbers = !isNaN(x) && !isNaN(y);
    return sign * (numbers ? x - y : x.localeCompare(y));
  }).forEach(row => body.appendChild(row));
  [...table.tHead.rows[0].cells].forEach((head, i) => head.setAttribute('aria-sort',
    i !== column ? 'none' : sign > 0 ? 'ascending' : 'descending'));
}
[...table.tHead.rows[0].cells].forEach((head, i) => {
  head.addEventListener('click', () => sort(i));
  head.addEventListener('keydown', event => { if (event.key === 'Enter') sort(i); });
});
"""


def esc(value: Any) -> str:
    """Text as HTML."""
    return html.escape(str(value))


def script_json(value: Any) -> str:
    """JSON that no text inside can end or escape from."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


def size(count: Any) -> str:
    """Bytes for people."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.4g} {unit}"


def facts(context: dict[str, Any]) -> dict[str, str]:
    """What the JSON of a run says of machine and build, in words."""
    machine = context.get("machine") or {}
    found = {"CPU": machine.get("cpu"), "host": machine.get("host"), "system": machine.get("os")}
    if "physical_cores" in machine:
        found["cores"] = f"{machine['physical_cores']} ({machine.get('logical_cpus')} logical)"
    caches = [f"{name} {size(machine[key])}" for name, key in (
        ("L1d", "l1d_bytes"), ("L2", "l2_bytes"), ("L3", "l3_bytes")) if machine.get(key)]
    found["caches"] = ", ".join(caches)
    if machine.get("memory_bytes"):
        found["memory"] = size(machine["memory_bytes"])
    for transfer in (context.get("ceilings") or {}).get("transfer") or []:
        found[f"link to {transfer['device']}"] = (
            f"{transfer['h2d_gb_s']:.3g} GB/s to it, {transfer['d2h_gb_s']:.3g} GB/s from it")
    found["build"] = " ".join(str(context[k]) for k in ("version", "build_commit", "compiler")
                              if context.get(k))
    found["arguments"] = " ".join(map(str, context.get("arguments") or []))
    return {name: str(value) for name, value in found.items() if value}


def warnings(context: dict[str, Any]) -> list[str]:
    """What disturbed the machine and which ceilings are doubtful, as HTML."""
    found = []
    for slowdown in context.get("slowdowns") or []:
        found.append(f"{esc(slowdown['what'])}<br><code>{esc(slowdown['mend'])}</code>")
    return found + [esc(w) for w in (context.get("ceilings") or {}).get("warnings") or []]


def about(machine: Machine) -> str:
    """What is known of the machine, its warnings, and what became of its rows."""
    parts = [f"<h3>{esc(machine.label)}</h3>"]
    counts: dict[str, int] = {}
    for row in machine.rows:
        counts[row["status"]] = counts.get(row["status"], 0) + 1
    told = ", ".join(f"{n} {status}" for status, n in counts.items()) or "no rows"
    parts.append(f"<p>Rows: {esc(told)}</p>")
    for name, context in machine.contexts:
        entries = "".join(f"<dt>{esc(k)}</dt><dd>{esc(v)}</dd>" for k, v in facts(context).items())
        parts.append(f"<p class=soft>{esc(name)}</p><dl>{entries}</dl>")
        if told := warnings(context):
            items = "".join(f"<li>{text}</li>" for text in told)
            parts.append(f"<details open><summary>{len(told)} warning"
                         f"{'' if len(told) == 1 else 's'}</summary><ul>{items}</ul></details>")
        if notes := (context.get("ceilings") or {}).get("notes"):
            items = "".join(f"<li>{esc(note)}</li>" for note in notes)
            parts.append(f"<details><summary>Cross-checks of the ceilings that held</summary>"
                         f"<ul>{items}</ul></details>")
    parts += [f"<p class=soft>{esc(note)}</p>" for note in machine.notes]
    return f'<div class="card">{"".join(parts)}</div>'


def ratio(figure: Figure | None) -> str:
    """How many times as fast, with its interval."""
    if figure is None:
        return ""
    interval = "" if figure.low is None else f" [{figure.low:.2f}, {figure.high:.2f}]"
    return f"{figure.value:.2f}×{interval}"


def share(size_class: SizeClass) -> str:
    """Per cent of the roof: geometric mean (least)."""
    if size_class.roof is None:
        return ""
    least = size_class.told["least_roof_pct"]
    return f"{size_class.roof.value:.0f}" + (
        f" ({least:.0f})" if size_class.told["problems"] > 1 else "")


def instead(size_class: SizeClass) -> str:
    """Which other variants to use where, those of one variant together."""
    by_variant: dict[str, list[str]] = {}
    for other in size_class.told["instead"]:
        faster = other["faster"] or {}
        by_variant.setdefault(other["variant"], []).append(
            other["shape"] + (f" ({faster['value']:.2f}×)" if faster else ""))
    return "; ".join(f"{variant} at {', '.join(shapes)}" for variant, shapes in by_variant.items())


def answer(machine: Machine) -> str:
    """Per kernel and class of sizes: what to use, by how much, how far from the roof, what else."""
    if not machine.classes:
        return '<p class="soft">No rows.</p>'
    titles = ("kernel", "size", "at", "use", "fastest in", "times as fast as the next",
              "as the best peer", "% of the roof (least)", "instead, where another wins")
    lines = []
    for one in machine.classes:
        cells = (one.setting, one.size, one.where, one.told["use"] or "undecided", one.wins,
                 ratio(one.over_next), ratio(one.over_best_peer), share(one),
                 instead(one))
        lines.append("<tr>" + "".join(f"<td>{esc(cell)}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th scope=col>{title}</th>" for title in titles)
    return (f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}'
            f'</tbody></table></div><p class="soft">{esc(machine.principle)}; ratios and shares of '
            "several problems are geometric means, with 95 % intervals.</p>")


def models(machine: Machine) -> str:
    """Steps of models with their shares, those of a phase together; empty without any."""
    titles = ("model", "phase", "step", "kernel", "variant", "calls", "ms a run", "share, %",
              "% of the roof", "bound by")
    lines = []
    for row in machine.rows:
        if not row.get("step") or row.get("p50_ns") in ("", None):
            continue
        phase, _, step = str(row["step"]).partition("/")
        calls = float(row["calls"]) if step else 1
        cells = (row["preset"], phase, step or "whole", row["kernel"] if step else "",
                 row["variant"], cell(row["calls"]), f"{float(row['p50_ns']) * calls * 1e-6:.4g}",
                 f"{float(row['share_pct']):.1f}",
                 f"{float(row['roof_pct']):.1f}" if row.get("roof_pct") not in ("", None) else "",
                 row.get("bound") or "")
        lines.append("<tr>" + "".join(f"<td>{esc(text)}</td>" for text in cells) + "</tr>")
    if not lines:
        return ""
    head = "".join(f"<th scope=col>{title}</th>" for title in titles)
    return (f'<h3>{esc(machine.label)}</h3><div class="scroll"><table><thead><tr>{head}</tr>'
            f'</thead><tbody>{"".join(lines)}</tbody></table></div>')


def without_speed(machine: Machine) -> str:
    """Rows that are not PASSED, those with one reason together."""
    same: dict[tuple[str, ...], list[str]] = {}
    for row in machine.rows:
        if row["status"] != "PASSED":
            key = row["status"], row["kernel"], row["variant"], row.get("reason", "")
            same.setdefault(key, []).append(row["shape"])
    if not same:
        return '<p class="soft">None: all rows PASSED.</p>'
    lines = "".join(
        f'<tr class="bad">{"".join(f"<td>{esc(cell)}</td>" for cell in key)}'
        f"<td>{len(shapes)}</td><td>{esc(shapes[0])}</td></tr>" for key, shapes in same.items())
    return ('<div class="scroll"><table><thead><tr><th>status<th>kernel<th>variant<th>reason'
            f"<th>rows<th>first shape</tr></thead><tbody>{lines}</tbody></table></div>")


def cell(value: Any) -> str:
    """A value of a row; whole numbers without a point."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value)


def table(machines: list[Machine]) -> str:
    """Every row, with every column in which some row has something."""
    columns = list(dict.fromkeys(c for machine in machines for c in machine.columns()))
    first = [c for c in ("cpu", "kernel", "variant", "threads", "shape", "status", "reason",
                         "p50_ns", "gflops", "gb_s", "roof_pct") if c in columns]
    columns = first + [c for c in columns if c not in first]
    head = "".join(f'<th scope=col tabindex=0>{esc(c)}</th>' for c in columns)

    def line(row: Row) -> str:
        kind = "" if row["status"] == "PASSED" else ' class="bad"'
        return f"<tr{kind}>{''.join(f'<td>{esc(cell(row[c]))}</td>' for c in columns)}</tr>"

    lines = "".join(line(row) for machine in machines for row in machine.rows)
    return (f'<div class="scroll"><table id="rows"><thead><tr>{head}</tr></thead>'
            f'<tbody>{lines}</tbody></table></div>')


def document(machines: list[Machine]) -> str:
    """The whole page."""
    drawn = [charts.sections(machine) for machine in machines]
    specs: list[dict[str, Any]] = []
    parts, links = [], []
    for number, section in enumerate(drawn[0]):
        if not any(one[section] for one in drawn):
            continue
        links.append(f'<a href="#s{number}">{esc(section)}</a>')
        parts.append(f'<h2 id="s{number}">{esc(section)}</h2><div class="machines">')
        for machine, one in zip(machines, drawn):
            parts.append(f'<div class="machine"><h3>{esc(machine.label)}</h3>')
            for title, spec in one[section]:
                parts.append(f'<figure><figcaption>{esc(title)}</figcaption>'
                             f'<div class="chart" id="chart{len(specs)}"></div></figure>')
                specs.append(spec)
            if not one[section]:
                parts.append('<p class="soft">Nothing measured.</p>')
            parts.append("</div>")
        parts.append("</div>")
    links = ['<a href="#answer">What to use</a>', *links, '<a href="#machines">Machines</a>',
             '<a href="#bad">Not passed</a>', '<a href="#all">All rows</a>']
    answers = "".join(f"<h3>{esc(m.label)}</h3>{answer(m)}" for m in machines)
    of_models = "".join(models(m) for m in machines)
    if of_models:
        links.insert(1, '<a href="#models">Models</a>')
        of_models = f'<h2 id="models">Models, step by step</h2>{of_models}'
    bad = "".join(f'<div class="machine"><h3>{esc(m.label)}</h3>{without_speed(m)}</div>'
                  for m in machines)
    library = charts.javascript().replace("</script", "<\\/script")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>Rooflane report</title><style>{STYLE}</style></head><body>
<header><h1>Rooflane report</h1><nav>{"".join(links)}</nav></header><main>
<h2 id="answer">What to use, by how much, and how far from the roof</h2>{answers}
{of_models}
{"".join(parts)}
<h2 id="machines">Machines</h2><div class="machines">{"".join(about(m) for m in machines)}</div>
<h2 id="bad">Not passed</h2><div class="machines">{bad}</div>
<h2 id="all">All rows</h2>
<input id="filter" type="search" placeholder="Filter: words that a row holds" aria-label="Filter">
{table(machines)}</main>
<script type="application/json" id="specs">{script_json(specs)}</script>
<script>{library}</script><script>{SCRIPT}</script></body></html>
"""

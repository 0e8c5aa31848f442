"""The charts of the report as Vega-Lite, made with Altair. Reads nothing, writes no files."""
from __future__ import annotations

from collections import defaultdict
from typing import Any

import altair as alt
import vl_convert

from report_page.results import Machine, Row, is_peer, number, where

Figure = tuple[str, dict[str, Any]]  # title, Vega-Lite

# Okabe and Ito's palette, told apart by the colour-blind, then Tol's muted one.
KNOWN = {"scalar": "#7f7f7f", "blas": "#E69F00", "hwy": "#0072B2", "opencl": "#009E73",
         "onednn": "#D55E00", "blis": "#CC79A7", "clblast": "#56B4E9", "numpy": "#B8A800",
         "torch": "#882255", "numba": "#44AA99", "onnxruntime": "#AA4499", "mkl": "#332288"}
OTHERS = ["#999933", "#CC6677", "#117733", "#88CCEE", "#6699CC", "#AA7744", "#661100", "#DDCC77"]
GREY = "#808a94"


def data(values: list[dict[str, Any]]) -> alt.Data:
    """Values inline."""
    return alt.Data(values=values)


def colour(variants: list[str]) -> alt.Color:
    """A fixed colour per well-known variant; its versions (NAME@...) share it."""
    names = list(dict.fromkeys(variants))
    strangers = sorted({n.split("@")[0] for n in names} - set(KNOWN))
    table = KNOWN | {n: OTHERS[i % len(OTHERS)] for i, n in enumerate(strangers)}
    return alt.Color("variant:N", title=None,
                     scale=alt.Scale(domain=names, range=[table[n.split("@")[0]] for n in names]),
                     legend=alt.Legend(orient="bottom", columns=6, symbolLimit=0, labelLimit=160))


def tips(*extra: str) -> list[alt.Tooltip]:
    """What hovering tells of a row."""
    names = ["kernel", "variant", "where", "isa", "shape", *extra]
    return [alt.Tooltip(f"{n}:{'N' if i < 5 else 'Q'}", title=n.replace("_", " "),
                        **({} if i < 5 else {"format": ".4~g"})) for i, n in enumerate(names)]


def record(row: Row, *columns: str) -> dict[str, Any]:
    """Names of a row and the numbers in `columns`."""
    entry: dict[str, Any] = {n: row.get(n, "") for n in ("kernel", "variant", "isa", "shape")}
    entry["where"] = where(row)
    entry.update({c: number(row, c) for c in columns})
    return entry


def passed(machine: Machine) -> list[Row]:
    """Rows whose result was right."""
    return [row for row in machine.rows if row["status"] == "PASSED"]


def has_speed(row: Row) -> bool:
    """Whether the roofline chart has a place for the row."""
    return (row["status"] == "PASSED" and (number(row, "gflops") or 0) > 0
            and (number(row, "ai") or 0) > 0)


def roofline(machine: Machine) -> alt.LayerChart | None:
    """GFLOP/s against FLOP/byte under every ceiling; nothing without rows that have a speed."""
    points = [record(r, "ai", "gflops", "roof_pct", "p50_ns") for r in machine.rows if has_speed(r)]
    if not points:
        return None
    low = min(min(p["ai"] for p in points), 0.25) / 2
    high = max(max(p["ai"] for p in points), 64.0) * 2
    top = max([c.value for c in machine.ceilings if c.kind == "fma"]
              + [p["gflops"] for p in points]) * 2
    bottom = min(p["gflops"] for p in points) / 2
    lines = []
    for ceiling in machine.ceilings:
        if ceiling.kind == "fma":
            ends = [(low, ceiling.value), (high, ceiling.value)]
        else:
            ends = [(x, x * ceiling.value) for x in
                    (max(low, bottom / ceiling.value), min(high, top / ceiling.value))]
        unit = "GFLOP/s" if ceiling.kind == "fma" else "GB/s"
        name = f"{ceiling.label}: {ceiling.value:.0f} {unit}"
        lines += [{"ceiling": name, "kind": ceiling.kind, "x": x, "y": y} for x, y in ends
                  if ends[0][0] < ends[1][0]]
    log_x = alt.Scale(type="log", domain=[low, high], nice=False)
    log_y = alt.Scale(type="log", domain=[bottom, top], nice=False)
    roofs = alt.Chart(data(lines)).mark_line(color=GREY, strokeWidth=1.2, opacity=0.7,
                                             clip=True).encode(
        x=alt.X("x:Q", scale=log_x, title="arithmetic intensity, FLOP/byte"),
        y=alt.Y("y:Q", scale=log_y, title="GFLOP/s"), detail="ceiling:N",
        strokeDash=alt.StrokeDash("kind:N", title=None, legend=alt.Legend(orient="bottom")),
        tooltip="ceiling:N")
    # The highest compute roof is labelled; hovering names every line.
    flat = [e for e in lines if e["kind"] == "fma"]
    text = alt.Chart(data([max(flat, key=lambda e: (e["y"], e["x"]))] if flat else [])).mark_text(
        align="right", dy=-7, dx=-4, color=GREY, limit=420).encode(
        x=alt.X("x:Q", scale=log_x), y=alt.Y("y:Q", scale=log_y), text="ceiling:N")
    marks = alt.Chart(data(points)).mark_point(filled=True, size=75, opacity=0.85).encode(
        x=alt.X("ai:Q", scale=log_x), y=alt.Y("gflops:Q", scale=log_y),
        color=colour([p["variant"] for p in points]),
        shape=alt.Shape("kernel:N", title=None,
                        legend=alt.Legend(orient="bottom", columns=4)),
        tooltip=tips("ai", "gflops", "roof_pct", "p50_ns"))
    return alt.layer(roofs, text, marks).resolve_scale(color="independent")


def speeds(machine: Machine) -> list[Figure]:
    """Speed against size, a chart per kernel."""
    figures = []
    for kernel in dict.fromkeys(r["kernel"] for r in machine.rows):
        points = [record(r, "flops", "gflops", "p50_ns") for r in machine.rows
                  if r["kernel"] == kernel and has_speed(r) and (number(r, "flops") or 0) > 0]
        if not points:
            continue
        chart = alt.Chart(data(points)).mark_line(point=alt.OverlayMarkDef(size=45)).encode(
            x=alt.X("flops:Q", scale=alt.Scale(type="log"), title="size, FLOP",
                    axis=alt.Axis(format="~s")),
            y=alt.Y("gflops:Q", scale=alt.Scale(type="log"), title="GFLOP/s"),
            color=colour([p["variant"] for p in points]),
            strokeDash=alt.StrokeDash("where:N", title=None, legend=alt.Legend(
                orient="bottom", columns=2, labelLimit=220)),
            tooltip=tips("flops", "gflops", "p50_ns"))
        figures.append((f"{kernel}: speed against size", spec(chart)))
    return figures


def speedups(machine: Machine) -> list[Figure]:
    """Bars: how many times as fast as scalar, and as the best peer at the same threads."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in passed(machine):
        if (number(row, "p50_ns") or 0) > 0:
            groups[row["kernel"], row["shape"]].append(row)
    bars: dict[str, list[dict[str, Any]]] = {"scalar": [], "the best peer": []}

    def bar(over: str, row: Row, least: list[float]) -> None:
        if least:
            entry = record(row, "p50_ns") | {"speed_up": min(least) / float(row["p50_ns"])}
            entry["name"] = f"{row['variant']}, {where(row)}"
            bars[over].append(entry | {"problem": f"{row['kernel']} {row['shape']}"})

    for rows in groups.values():
        scalar = [float(r["p50_ns"]) for r in rows if r["variant"] == "scalar"]
        for row in rows:
            peers = [float(r["p50_ns"]) for r in rows if is_peer(r) and where(r) == where(row)]
            if row["variant"] != "scalar":
                bar("scalar", row, scalar)
            if not is_peer(row) and row["variant"] != "scalar":
                bar("the best peer", row, peers)
    figures = []
    for over, values in bars.items():
        if not values:
            continue
        chart = alt.Chart(data(values)).mark_bar().encode(
            y=alt.Y("problem:N", title=None, sort=None, axis=alt.Axis(labelLimit=230)),
            yOffset=alt.YOffset("name:N", sort=None),
            x=alt.X("speed_up:Q", title=f"times as fast as {over}"),
            color=colour([v["variant"] for v in values]), tooltip=tips("speed_up", "p50_ns"))
        rule = alt.Chart(data([{"one": 1}])).mark_rule(color=GREY, strokeDash=[4, 3]).encode(
            x="one:Q")
        figures.append((f"Speed-up over {over}", spec(alt.layer(chart, rule), alt.Step(9))))
    return figures


def distributions(machine: Machine) -> list[Figure]:
    """Samples over their row's median, a chart per kernel."""
    figures = []
    for kernel in dict.fromkeys(r["kernel"] for r in machine.rows):
        values = []
        for row, sample in machine.samples:
            median = number(row, "p50_ns")
            if row["kernel"] == kernel and median:
                values.append(record(row) | sample | {
                    "over_median": sample["ns"] / median,
                    "name": f"{row['variant']}, {where(row)}"})
        if values:
            chart = alt.Chart(data(values)).mark_tick(opacity=0.45, thickness=1.5).encode(
                x=alt.X("over_median:Q", title="time over the row's median",
                        scale=alt.Scale(type="log")),
                y=alt.Y("name:N", title=None, sort=None),
                color=colour([v["variant"] for v in values]),
                tooltip=tips("ns", "over_median", "launch", "round"))
            figures.append((f"{kernel}: samples", spec(chart, alt.Step(22))))
    return figures


def crossover(machine: Machine) -> list[Figure]:
    """Devices without threads, with and without transfers, against the best CPU row."""
    figures = []
    for kernel in dict.fromkeys(r["kernel"] for r in machine.rows):
        rows = [r for r in passed(machine) if r["kernel"] == kernel and number(r, "flops")]
        values, best = [], {}
        for row in rows:
            if not row.get("threads") and row.get("device"):
                values += [record(row, "flops") | {"ns": number(row, c), "series": s}
                           for c, s in (("e2e_ns", "GPU with transfers"),
                                        ("kernel_ns", "GPU kernel alone")) if number(row, c)]
            elif ns := number(row, "p50_ns"):
                if row["shape"] not in best or ns < best[row["shape"]]["ns"]:
                    best[row["shape"]] = record(row, "flops") | {"ns": ns, "series": "best CPU"}
        if values:
            chart = alt.Chart(data(values + list(best.values()))).mark_line(point=True).encode(
                x=alt.X("flops:Q", scale=alt.Scale(type="log"), title="size, FLOP"),
                y=alt.Y("ns:Q", scale=alt.Scale(type="log"), title="ns",
                        axis=alt.Axis(format="~s")), detail="variant:N" if not best else "series:N",
                color=alt.Color("series:N", title=None, legend=alt.Legend(orient="bottom"),
                                scale=alt.Scale(
                                    domain=["best CPU", "GPU with transfers", "GPU kernel alone"],
                                    range=["#0072B2", "#D55E00", "#009E73"])),
                tooltip=tips("ns"))
            figures.append((f"{kernel}: CPU or GPU", spec(chart)))
    return figures


def strips(machine: Machine, title: str, columns: dict[str, str], log: bool) -> list[Figure]:
    """A chart per column: its values by variant, one mark a row."""
    figures = []
    for column, label in columns.items():
        values = []
        for row in machine.rows:
            value = number(row, column)
            if column == "err_value":
                threshold = number(row, "err_threshold")
                value = value / threshold if value is not None and threshold else None
            if value is not None and (value > 0 or not log):
                values.append(record(row) | {"value": value})
        if values:
            chart = alt.Chart(data(values)).mark_point(filled=True, opacity=0.6).encode(
                x=alt.X("value:Q", title=label, axis=alt.Axis(format="~g" if not log else "~s"),
                        scale=alt.Scale(type="log" if log else "linear")),
                y=alt.Y("variant:N", title=None, sort=None),
                shape=alt.Shape("kernel:N", title=None, legend=alt.Legend(orient="bottom")),
                color=colour([v["variant"] for v in values]).legend(None), tooltip=tips("value"))
            figures.append((f"{title}: {label}", spec(chart, alt.Step(26))))
    return figures


def spec(chart: alt.Chart | alt.LayerChart, height: Any = 340) -> dict[str, Any]:
    """Vega-Lite that fills its container; colours of text and axes are the page's."""
    made = chart.properties(width="container", height=height).to_dict()
    for unwanted in ("config", "$schema"):
        made.pop(unwanted, None)
    return made


def sections(machine: Machine) -> dict[str, list[Figure]]:
    """All charts of a machine by section."""
    roof = roofline(machine)
    return {
        "Roofline": [("Every ceiling measured and what was reached", spec(roof, 460))]
        if roof else [],
        "Speed against size": speeds(machine),
        "Speed-up": speedups(machine),
        "Sample distributions": distributions(machine),
        "CPU-GPU crossover": crossover(machine),
        "Accuracy": strips(machine, "Accuracy", {"err_value": "error over its threshold"}, False),
        "Memory": strips(machine, "Memory", {"workspace_bytes": "workspace, bytes",
                                             "packed_bytes": "packed constants, bytes",
                                             "peak_rss_bytes": "peak resident memory, bytes"},
                         True)}


def picture(machines: list[Machine]) -> str:
    """The rooflines as a static SVG 900 pixels wide, one below the other."""
    drawn = []
    for machine in machines:
        chart = roofline(machine)
        if chart is None:
            chart = alt.layer(alt.Chart(data([{"t": "no row has a speed"}])).mark_text().encode(
                text="t:N"))
        drawn.append(chart.properties(width=800, height=460, title=machine.label))
    whole = alt.vconcat(*drawn).configure(background="white", font="sans-serif").configure_axis(
        gridColor="#eceff1", labelFontSize=12, titleFontSize=13).configure_legend(labelFontSize=12)
    return vl_convert.vegalite_to_svg(whole.to_dict())


def javascript() -> str:
    """Vega, Vega-Lite and vega-embed, to be inlined."""
    return vl_convert.javascript_bundle()

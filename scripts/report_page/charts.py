"""The charts of the report as Vega-Lite, made with Altair: all but the roofline (roofline.py).
Reads nothing, writes no files."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import vl_convert

from report_page import roofline
from report_page.marks import GREY, Figure, choice, colour, data, log_scale, record, spec, tips
from report_page.results import Machine, number, problem_name, unusual, where

ALL = "all"
LINE = 34  # letters that fit beside a chart
BESIDE = 4  # columns of a legend that fit under such a chart
NO_CPU = "no CPU row"


def kernels(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Kernels in the order of the rows."""
    return list(dict.fromkeys(row["kernel"] for row in rows))


def rule_at_one() -> alt.Chart:
    """A line where a ratio is 1."""
    return alt.Chart(data([{"one": 1}])).mark_rule(color=GREY, strokeDash=[4, 3]).encode(x="one:Q")


def speeds(machine: Machine) -> list[Figure]:
    """Speed against size, a chart per kernel. Lines join only shapes of one family."""
    figures = []
    for kernel in kernels(machine.rows):
        rows = [r for r in machine.rows if r["kernel"] == kernel and roofline.has_speed(r)
                and (number(r, "flops") or 0) > 0]
        if not rows:
            continue
        family = machine.families.get(kernel, {})
        points = [record(r, "flops", "gflops", "gb_s", "p50_ns")
                  | {"family": family.get(r["shape"], r["shape"]),
                     "line": "|".join([r["variant"], where(r), *(r.get(c, "") for c in (
                         "isa", "library", "device", "cache", "math", "run_id"))])}
                  for r in rows]
        base = alt.Chart(data(points)).encode(
            x=alt.X("flops:Q", scale=log_scale(), title="size, FLOP",
                    axis=alt.Axis(format="~s")),
            y=alt.Y("gflops:Q", scale=log_scale(), title="GFLOP/s"),
            color=colour([p["variant"] for p in points]),
            tooltip=tips("flops", "gflops", "gb_s", "p50_ns"))
        lines = base.mark_line(strokeWidth=1.6).encode(
            detail=["line:N", "family:N"],
            strokeDash=alt.StrokeDash("where:N", title=None, legend=alt.Legend(
                orient="bottom", columns=2, labelLimit=220, symbolSize=300,
                symbolStrokeColor=GREY)))
        layers = [lines, base.mark_point(filled=True, size=45, opacity=1)]
        known = sorted(set(family.values()))
        if len(known) > 1:
            layers = [layer.transform_filter(f"sizes == '{ALL}' || datum.family == sizes")
                      for layer in layers]
            chart = alt.layer(*layers).add_params(choice("sizes", "shapes ", [ALL, *known], ALL))
        else:
            chart = alt.layer(*layers)
        figures.append((f"{kernel}: speed against size", spec(chart)))
    return figures


def by_threads(layers: list[alt.Chart], values: list[dict[str, Any]], *fixed: alt.Chart
               ) -> dict[str, Any]:
    """The layers, with rows of problems and a bar each per `name`, and a list of thread counts to
    choose from, the most at first. `fixed` layers stay."""
    names: dict[str, set[str]] = {}
    for value in values:
        names.setdefault(value["threads"], set()).add(value["name"])
    counts = sorted(names, key=lambda t: (t != NO_CPU, len(t), t))
    # A problem's name takes two lines, however few its bars are.
    step = alt.Step(max(9, -(-26 // len(names[counts[-1]]))))
    if len(counts) < 2:
        return spec(alt.layer(*layers, *fixed), step)
    chosen = [layer.transform_filter("datum.threads == threads") for layer in layers]
    return spec(alt.layer(*chosen, *fixed).add_params(
        choice("threads", "threads ", counts, counts[-1])), step)


def two_lines(name: str) -> str:
    """A long name broken at the comma nearest to its middle."""
    commas = [i for i, letter in enumerate(name) if letter == ","]
    if len(name) <= LINE or not commas:
        return name
    at = min(commas, key=lambda i: abs(i - len(name) // 2)) + 1
    return f"{name[:at]}\n{name[at:]}"


def problems_axis() -> alt.Y:
    """Problems from top to bottom, long names in two lines."""
    return alt.Y("problem:N", title=None, sort=None, axis=alt.Axis(
        labelLimit=260, labelExpr="split(datum.label, '\\n')"))


def speedups(machine: Machine) -> list[Figure]:
    """Bars: how many times as fast as scalar, and as the best peer, as `rooflane roofline` has it,
    from the rounds that both were measured in."""
    bars: dict[str, list[dict[str, Any]]] = {"scalar": [], "the best peer": []}
    for group in machine.groups:
        for line in group.lines:
            row = line.row
            if row["variant"] == "scalar":
                continue
            for over, rival, figure in (
                    ("scalar", "scalar", line.over_scalar),
                    ("the best peer", (group.best_peer or {}).get("variant"),
                     None if row is group.best_peer else line.over_best_peer)):
                if figure is None:
                    continue
                bars[over].append(record(row, "p50_ns") | {
                    "speed_up": figure.value, "low": figure.low, "high": figure.high, "one": 1,
                    "over": rival, "threads": group.threads or NO_CPU,
                    "problem": two_lines(problem_name(row)),
                    "name": f"{row['variant']}, {where(row)}, {row['isa']}"})
    figures = []
    for over, all_values in bars.items():
        for kernel in kernels(all_values):
            values = [v for v in all_values if v["kernel"] == kernel]
            chart = alt.Chart(data(values)).mark_bar().encode(
                y=problems_axis(), yOffset=alt.YOffset("name:N", sort=None),
                x=alt.X("speed_up:Q", scale=log_scale(), axis=alt.Axis(format="~g", orient="top"),
                        title=f"times as fast as {over} (log)"), x2="one:Q",
                color=colour([v["variant"] for v in values], BESIDE),
                tooltip=[*tips("speed_up", "low", "high", "p50_ns"), alt.Tooltip("over:N")])
            figures.append((f"{kernel}: speed-up over {over}",
                            by_threads([chart], values, rule_at_one())))
    return figures


def shares(machine: Machine) -> list[Figure]:
    """How much of the roof was reached, with its interval, and of the model where it says more."""
    found = []
    for group in machine.groups:
        for row in (line.row for line in group.lines):
            if number(row, "roof_pct") is None:
                continue
            entry = record(row, "roof_pct", "roof_pct_lo", "roof_pct_hi", "model_pct", "p50_ns")
            model = entry["model_pct"]
            entry["of_model"] = (model if model is not None
                                 and abs(model - entry["roof_pct"]) > 0.01 * model else None)
            found.append(entry | {
                "threads": group.threads or NO_CPU,
                "problem": two_lines(problem_name(row)),
                "name": f"{row['variant']}, {where(row)}, {row['isa']}"})
    return [share_of_kernel(kernel, [v for v in found if v["kernel"] == kernel])
            for kernel in kernels(found)]


def share_of_kernel(kernel: str, values: list[dict[str, Any]]) -> Figure:
    """The chart of one kernel's shares."""
    base = alt.Chart(data(values)).encode(
        y=problems_axis(), yOffset=alt.YOffset("name:N", sort=None),
        color=colour([v["variant"] for v in values], BESIDE),
        tooltip=tips("roof_pct", "roof_pct_lo", "roof_pct_hi", "model_pct", "p50_ns"))
    title = "% of the strict roof, 95 % interval"
    hollow = any(v["of_model"] is not None for v in values)
    interval = base.mark_rule(strokeWidth=1.5, clip=True).encode(
        x=alt.X("roof_pct_lo:Q", scale=alt.Scale(domain=[0, 125]), axis=alt.Axis(orient="top"),
                title=title + ("; hollow: % of the model" if hollow else "")),
        x2="roof_pct_hi:Q")
    layers = [interval, base.mark_point(filled=True, size=40, clip=True).encode(x="roof_pct:Q")]
    if hollow:
        layers.append(base.mark_point(shape="diamond", size=45, clip=True).encode(
            x="of_model:Q").transform_filter("isValid(datum.of_model)"))
    return f"{kernel}: share of the roof that was reached", by_threads(layers, values)


def distributions(machine: Machine) -> list[Figure]:
    """Samples over their row's median, a chart per kernel; crosses were disturbed."""
    figures = []
    for kernel in kernels(machine.rows):
        values = []
        for row, sample in machine.samples:
            median = number(row, "p50_ns")
            if row["kernel"] == kernel and median:
                values.append(record(row) | {c: sample[c] for c in ("ns", "round", "launch")} | {
                    "over_median": sample["ns"] / median, "disturbance": sample["disturbance"],
                    "name": f"{row['variant']}, {where(row)}"})
        if not values:
            continue
        order = list(dict.fromkeys(f"{r['variant']}, {where(r)}" for r in machine.rows))
        values.sort(key=lambda v: order.index(v["name"]))
        base = alt.Chart(data(values)).encode(
            x=alt.X("over_median:Q", title="time over the row's median",
                    scale=log_scale(), axis=alt.Axis(format="~g")),
            y=alt.Y("name:N", title=None, sort=None),
            color=colour([v["variant"] for v in values]).legend(None),
            tooltip=[*tips("ns", "over_median", "launch", "round"), alt.Tooltip("disturbance:N")])
        layers = [base.mark_tick(opacity=0.45, thickness=1.5).transform_filter(
            "datum.disturbance == ''")]
        title = f"{kernel}: samples"
        if any(v["disturbance"] for v in values):
            layers.append(base.mark_point(shape="cross", filled=True, size=35, opacity=0.7)
                          .transform_filter("datum.disturbance != ''"))
            title += " (crosses: disturbed)"
        figures.append((title, spec(alt.layer(*layers), alt.Step(22))))
    return figures


def crossover(machine: Machine) -> list[Figure]:
    """A device against the fastest CPU row: over all problems, then along families of shapes."""
    figures = []
    series = {"kernel_ns": "kernel alone", "end_to_end_ns": "with transfers"}
    shades = {"fastest CPU": "#0072B2", "kernel alone": "#009E73", "with transfers": "#D55E00"}

    def colours(*names: str) -> alt.Color:
        return alt.Color("series:N", title=None, legend=alt.Legend(orient="bottom"),
                         scale=alt.Scale(domain=names, range=[shades[n] for n in names]))

    tooltip = [alt.Tooltip(f"{n}:N") for n in ("name", "series", "cpu")] + [
        alt.Tooltip(f"{n}:Q", format=".4~g") for n in ("ns", "times")]
    for compared in machine.devices:
        setting, device = " ".join([compared["kernel"], *unusual(compared)]), compared["device"]
        values, curves = [], []
        for point in compared["points"]:
            cpu = point["cpu_row"]
            common = {"problem": two_lines(problem_name(cpu)), "name": point["shape"],
                      "flops": point["flops"], "cpu": f"{cpu['variant']}, {where(cpu)}"}
            curves.append(common | {"series": "fastest CPU", "ns": cpu["p50_ns"], "times": 1})
            for column, name in series.items():
                if ns := point[column]:
                    values.append(common | {"series": name, "ns": ns, "times": cpu["p50_ns"] / ns})
        dots = alt.Chart(data(values)).mark_point(filled=True, size=60).encode(
            x=alt.X("times:Q", scale=alt.Scale(type="log"), axis=alt.Axis(format="~g"),
                    title="times as fast as the fastest CPU row (log)"),
            y=problems_axis(), color=colours(*series.values()), tooltip=tooltip)
        figures.append((f"{setting}: {device} against the CPU",
                        spec(alt.layer(dots, rule_at_one()), alt.Step(30))))
        for family in compared["families"]:
            chart = alt.Chart(data([v for v in curves + values if v["name"] in family["shapes"]])
                              ).mark_line(point=True).encode(
                x=alt.X("flops:Q", scale=log_scale(), title="size, FLOP",
                        axis=alt.Axis(format="~s")),
                y=alt.Y("ns:Q", scale=alt.Scale(type="log"), title="time, ns",
                        axis=alt.Axis(format="~s")), color=colours(*shades), tooltip=tooltip)
            figures.append((family["text"], spec(chart, 260)))
    return figures


def accuracy(machine: Machine) -> list[Figure]:
    """Errors over what is allowed, one mark a row; beyond 1 a row fails."""
    values = []
    for row in machine.rows:
        error, threshold = number(row, "err_value"), number(row, "err_threshold")
        if error is not None and threshold:
            values.append(record(row, "max_abs_err") | {
                "error": error / threshold, "status": row["status"]})
    if not values:
        return []
    wide = max(v["error"] for v in values) > 2
    title = "Error over what is allowed"
    if wide and any(v["error"] <= 0 for v in values):
        title += " (rows without any error are not drawn)"
    chart = alt.Chart(data(values)).mark_point(filled=True, opacity=0.6).encode(
        x=alt.X("error:Q", title="error / threshold", axis=alt.Axis(format="~g"),
                scale=alt.Scale(type="log") if wide else alt.Scale(domain=[0, 1.05])),
        y=alt.Y("variant:N", title=None, sort=None),
        shape=alt.Shape("kernel:N", title=None, legend=alt.Legend(orient="bottom")),
        color=colour([v["variant"] for v in values]).legend(None),
        tooltip=[*tips("error", "max_abs_err"), alt.Tooltip("status:N")])
    if wide:
        chart = chart.transform_filter("datum.error > 0")
    return [(title, spec(alt.layer(chart, rule_at_one()), alt.Step(26)))]


def memory(machine: Machine) -> list[Figure]:
    """A chart per kind of memory, one mark a row."""
    figures = []
    for column, label in {"workspace_bytes": "Workspace", "packed_bytes": "Packed constants",
                          "peak_rss_bytes": "Peak resident memory"}.items():
        values = [record(row) | {"mib": value / 2**20} for row in machine.rows
                  if (value := number(row, column)) is not None and value > 0]
        if not values:
            continue
        none = sum(number(row, column) == 0 for row in machine.rows)
        title = label + (f" ({none} rows need none)" if none else "")
        chart = alt.Chart(data(values)).mark_point(filled=True, opacity=0.6).encode(
            x=alt.X("mib:Q", title="MiB (log)", axis=alt.Axis(format="~g"),
                    scale=alt.Scale(type="log")),
            y=alt.Y("variant:N", title=None, sort=None),
            shape=alt.Shape("kernel:N", title=None, legend=alt.Legend(orient="bottom")),
            color=colour([v["variant"] for v in values]).legend(None), tooltip=tips("mib"))
        figures.append((title, spec(chart, alt.Step(26))))
    return figures


def sections(machine: Machine) -> dict[str, list[Figure]]:
    """All charts of a machine by section."""
    roof = roofline.on_page(machine)
    return {"Roofline": [("Measured ceilings and what was reached", roof)] if roof else [],
            "Share of the roof": shares(machine),
            "Speed against size": speeds(machine),
            "Speed-up": speedups(machine),
            "Sample distributions": distributions(machine),
            "CPU-GPU crossover": crossover(machine),
            "Accuracy": accuracy(machine),
            "Memory": memory(machine)}


def javascript() -> str:
    """Vega, Vega-Lite and vega-embed, to be inlined."""
    return vl_convert.javascript_bundle()

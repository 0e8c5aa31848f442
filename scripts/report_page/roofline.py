"""The roofline chart, on the page and as a static picture. Shared pieces: marks.py."""
from __future__ import annotations

import math
from typing import Any

import altair as alt
import vl_convert

from report_page.marks import GREY, choice, colour, data, record, spec, tips
from report_page.results import TIMED, Ceiling, Machine, Row, number, place, where

CLOSE = 1.1  # peaks within a tenth of one another share a line
HEIGHT = 480  # pixels
LABEL = 13  # pixels from one line of text to the next


def has_speed(row: Row) -> bool:
    """Whether the chart has a point for the row."""
    return (row["status"] in TIMED and (number(row, "gflops") or 0) > 0
            and (number(row, "ai") or 0) > 0)


def thread_counts(machine: Machine) -> dict[int, list[str]]:
    """Row (by id) -> the thread counts at which it is compared: its own, or, of a variant that runs
    on one thread only, every one that others run on."""
    found: dict[int, list[str]] = {}
    for group in machine.groups:
        for line in group.lines:
            found.setdefault(id(line.row), []).append(group.threads)
    return found


def places_of(row: Row, counts: dict[int, list[str]]) -> list[str]:
    """The places with the ceilings that a row is shown under: the CPU at its thread counts, its
    device."""
    found = []
    if row["threads"]:
        found = [where({"threads": count}) for count in counts.get(id(row), [row["threads"]])]
    if row["device"]:
        found.append(place(row["threads"], row["device"]))
    return found or [where(row)]


def points_of(machine: Machine) -> list[dict[str, Any]]:
    """A point per row with a speed and place it is shown at; CPU places first, most threads on
    top."""
    rows = [row for row in machine.rows if has_speed(row)]
    counts = thread_counts(machine)
    threads = sorted({r["threads"] for r in rows if r["threads"]},
                     key=lambda count: (len(count), count), reverse=True)
    order = [where({"threads": count}) for count in threads]
    points = [record(row, "ai", "gflops", "gb_s", "roof_pct", "model_pct", "p50_ns")
              | {"place": at} for row in rows for at in places_of(row, counts)]
    return sorted(points, key=lambda p: order.index(p["place"]) if p["place"] in order
                  else len(order))


def distinct_peaks(ceilings: list[Ceiling]) -> list[tuple[str, float]]:
    """(names, GFLOP/s), close ones together."""
    found: list[tuple[list[str], float]] = []
    for ceiling in sorted(ceilings, key=lambda c: -c.value):
        if found and found[-1][1] < CLOSE * ceiling.value:
            if ceiling.name not in found[-1][0]:
                found[-1][0].append(ceiling.name)
        else:
            found.append(([ceiling.name], ceiling.value))
    return [(", ".join(names), value) for names, value in found]


def roofs(machine: Machine, at: str, low: float, high: float) -> list[dict[str, Any]]:
    """Ends of the lines of one place: flat for peaks, rising to the highest peak for bandwidths."""
    here = [c for c in machine.ceilings if c.place == at]
    peaks = distinct_peaks([c for c in here if c.kind == "fma"])
    slopes = [c for c in here if c.kind == "bandwidth"]
    top = max([value for _, value in peaks], default=max([high * c.value for c in slopes],
                                                         default=0))
    fastest = max([c.value for c in slopes], default=0)
    lines = []
    for names, value in peaks:
        start = max(low, value / fastest) if fastest else low
        lines.append((f"{names}  {value:,.0f} GFLOP/s", "fma", (start, value), (high, value)))
    for c in slopes:
        if low < top / c.value:
            lines.append((f"{c.name}  {c.value:,.0f} GB/s", "bandwidth", (low, low * c.value),
                          (min(high, top / c.value), min(high * c.value, top))))
    return [{"place": at, "ceiling": name, "kind": kind, "x": x, "y": y, "end": end}
            for name, kind, *ends in lines for end, (x, y) in enumerate(ends)]


def set_labels(lines: list[dict[str, Any]], decades: float) -> None:
    """Puts the labels of bandwidths where their lines begin, close ones below one another."""
    lowest: dict[str, float] = {}  # label of each place so far
    for line in sorted(lines, key=lambda end: -end["y"]):
        if line["kind"] == "bandwidth" and line["end"] == 0:
            below = lowest.get(line["place"], math.inf) / 10 ** (LABEL * decades / HEIGHT)
            line["label_y"] = lowest[line["place"]] = min(line["y"], below)


def chart(machine: Machine, only: str | None = None) -> alt.LayerChart | None:
    """GFLOP/s against FLOP/byte under the ceilings of one place: `only`, or the one chosen from a
    list. Nothing without rows that have a speed."""
    points = [p for p in points_of(machine) if only in (None, p["place"])]
    if not points:
        return None
    places = list(dict.fromkeys(p["place"] for p in points))
    low = min(min(p["ai"] for p in points), 0.25) / 2
    high = max(max(p["ai"] for p in points), 64.0) * 5  # labels are right of all points
    lines = [end for at in places for end in roofs(machine, at, low, high)]
    slowest = min([p["gflops"] for p in points] + [e["y"] for e in lines if e["y"] > 0])
    top = max([p["gflops"] for p in points] + [e["y"] for e in lines if e["kind"] == "fma"])
    set_labels(lines, math.log10(top * 2 / (slowest / 2)))
    x = alt.Scale(type="log", domain=[low, high], nice=False)
    y = alt.Scale(type="log", domain=[slowest / 2, top * 2], nice=False)
    roof = alt.Chart(data(lines)).encode(
        x=alt.X("x:Q", scale=x, title="arithmetic intensity, FLOP/byte"),
        y=alt.Y("y:Q", scale=y, title="GFLOP/s"), detail="ceiling:N", tooltip="ceiling:N")
    drawn = roof.mark_line(color=GREY, strokeWidth=1.3, clip=True)
    # Twice: a broad outline in the colour of the paper, then the letters.
    labels = []
    for look in ({"style": "halo"}, {"color": GREY}):
        look |= {"fontSize": 11, "limit": 420}
        labels.append(roof.mark_text(align="right", dx=-4, dy=-7, **look).encode(
            text="ceiling:N").transform_filter("datum.kind == 'fma' && datum.end == 1"))
        labels.append(roof.mark_text(align="left", dx=8, dy=5, **look).encode(
            y=alt.Y("label_y:Q", scale=y), text="ceiling:N").transform_filter(
                "isValid(datum.label_y)"))
    marks = alt.Chart(data(points)).mark_point(filled=True, size=75, opacity=0.85).encode(
        x=alt.X("ai:Q", scale=x), y=alt.Y("gflops:Q", scale=y),
        color=colour([p["variant"] for p in points]),
        shape=alt.Shape("kernel:N", title=None, legend=alt.Legend(orient="bottom", columns=4)),
        tooltip=tips("ai", "gflops", "gb_s", "roof_pct", "model_pct", "p50_ns"))
    if len(places) == 1:
        return alt.layer(drawn, *labels, marks)
    chosen = "datum.place == place"
    return alt.layer(*(layer.transform_filter(chosen) for layer in (drawn, *labels, marks))
                     ).add_params(choice("place", "limits of ", places, places[0]))


def on_page(machine: Machine) -> dict[str, Any] | None:
    """The chart for the page."""
    drawn = chart(machine)
    return spec(drawn, HEIGHT) if drawn is not None else None


def picture(machines: list[Machine]) -> str:
    """A static SVG 900 pixels wide: a chart per machine, of its CPU at the most threads (a device
    where there is no CPU row)."""
    drawn = []
    for machine in machines:
        points = points_of(machine)
        if points:
            at = points[0]["place"]
            one, title = chart(machine, at), f"{machine.label}, {at}"
        else:
            one = alt.layer(alt.Chart(data([{"t": "no row has a speed"}])).mark_text().encode(
                text="t:N"))
            title = machine.label
        drawn.append(one.properties(width=800, height=HEIGHT, title=title))
    halo = {"halo": {"stroke": "white", "strokeWidth": 4, "strokeJoin": "round"}}
    # aria=False: descriptions of all marks would be half of the file. The page that shows the
    # picture describes it.
    whole = alt.vconcat(*drawn).configure(
        aria=False, background="white", font="sans-serif", style=halo).configure_axis(
        gridColor="#eceff1", labelFontSize=12, titleFontSize=13).configure_legend(labelFontSize=12)
    return vl_convert.vegalite_to_svg(whole.to_dict())

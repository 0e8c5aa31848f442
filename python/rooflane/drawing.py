"""Small charts as SVG text: lines, and bars of shares. Nothing to install, nothing to load; text
and axes take the colour of their surroundings. Used by the reports and the table of models.
"""
from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

# Okabe and Ito's palette, told apart by the colour-blind, then Tol's muted one; as in
# scripts/report_page/marks.py.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#B8A800",
           "#44AA99", "#6A5ACD", "#CC6677", "#117733"]
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
WIDTH, HEIGHT = 760, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 165, 12, 46
ROW = 22  # of bars(), and of the legend
STYLE = ("<style>svg{color:#1f2933}@media(prefers-color-scheme:dark){svg{color:#e4e8ec}}"
         "</style>")


@dataclass
class Series:
    """One line, or loose marks."""
    name: str
    points: list[tuple[float, float]]
    colour: str
    step: bool = False  # a value holds until the next
    joined: bool = True
    dots: bool = False
    tips: list[str] = field(default_factory=list)  # one a point, for hovering over dots


def esc(value: object) -> str:
    """Text as XML, which knows no control characters."""
    return html.escape(CONTROL.sub(" ", str(value)))


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers between two."""
    if not high > low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = power * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """A tick's label."""
    return f"{value:.6g}".replace("-", "−")


@dataclass
class _Scale:
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1)
        return round(self.start + share * (self.end - self.start), 2)


def _text(x: float, y: float, words: object, anchor: str = "middle", more: str = "") -> str:
    return (f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="currentColor" {more}>'
            f"{esc(words)}</text>")


def _line(x1: float, y1: float, x2: float, y2: float, more: str) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="currentColor" {more}/>'


GRID = 'stroke-opacity="0.15"'
AXIS = 'stroke-opacity="0.6"'


def _framed(parts: Iterable[str], width: float, height: float, title: str) -> str:
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="{esc(title)}" '
            f'font-family="system-ui, sans-serif" font-size="12">{"".join(parts)}</svg>')


def _axes(across: _Scale, up: _Scale, x_label: str, y_label: str) -> list[str]:
    parts = []
    for tick in ticks(across.low, across.high, 8):
        x = across(tick)
        parts += [_line(x, up.end, x, up.start, GRID), _text(x, up.start + 16, number(tick))]
    for tick in ticks(up.low, up.high):
        y = up(tick)
        parts += [_line(across.start, y, across.end, y, GRID),
                  _text(across.start - 7, y + 4, number(tick), "end")]
    middle_x, middle_y = (across.start + across.end) / 2, (up.start + up.end) / 2
    parts += [_line(across.start, up.start, across.end, up.start, AXIS),
              _line(across.start, up.start, across.start, up.end, AXIS),
              _text(middle_x, up.start + 36, x_label),
              _text(15, middle_y, y_label, more=f'transform="rotate(-90 15 {middle_y})"')]
    return parts


def _path(points: Sequence[tuple[float, float]], step: bool) -> str:
    drawn = [f"M{points[0][0]} {points[0][1]}"]
    for x, y in points[1:]:
        drawn.append(f"H{x}V{y}" if step else f"L{x} {y}")
    return "".join(drawn)


def _drawn(series: Series, across: _Scale, up: _Scale) -> list[str]:
    kept = [(at, (across(x), up(y))) for at, (x, y) in enumerate(series.points)
            if up.low <= y <= up.high]
    parts = []
    if series.joined:
        # A part outside the frame interrupts the line.
        pieces: list[list[tuple[float, float]]] = []
        last = None
        for at, place in kept:
            if last is None or at != last + 1:
                pieces.append([])
            pieces[-1].append(place)
            last = at
        parts += [f'<path d="{_path(piece, series.step)}" fill="none" stroke="{series.colour}" '
                  'stroke-width="2" stroke-linejoin="round"/>' for piece in pieces]
    if series.dots or not series.joined:
        for at, (x, y) in kept:
            tip = f"<title>{esc(series.tips[at])}</title>" if series.tips else ""
            parts.append(f'<circle cx="{x}" cy="{y}" r="3.2" fill="{series.colour}" '
                         f'fill-opacity="0.75">{tip}</circle>')
    return parts


def lines(series: Sequence[Series], title: str, x_label: str, y_label: str,
          y_range: tuple[float, float] | None = None,
          rules: Sequence[tuple[float, str]] = ()) -> str:
    """Lines and marks over one pair of axes, the legend beside them in the order of the last
    values; `rules` are horizontal lines with a name. Without points: a picture that says so."""
    drawn = [one for one in series if one.points]
    xs = [x for one in drawn for x, _ in one.points]
    if not xs:
        return _framed([_text(WIDTH / 2, 30, "nothing to draw")], WIDTH, 60, title)
    ys = [y for one in drawn for _, y in one.points] + [value for value, _ in rules]
    low, high = y_range or (min(ys), max(ys))
    room = 0 if y_range else (high - low or abs(high) or 1) * 0.06
    across = _Scale(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    up = _Scale(low - room, high + room, HEIGHT - BOTTOM, TOP)
    parts = _axes(across, up, x_label, y_label)
    for value, name in rules:
        if up.low <= value <= up.high:
            parts += [_line(LEFT, up(value), WIDTH - RIGHT, up(value),
                            'stroke-dasharray="5 4" stroke-opacity="0.7"'),
                      _text(WIDTH - RIGHT - 4, up(value) - 5, name, "end", 'fill-opacity="0.8"')]
    for one in drawn:
        parts += _drawn(one, across, up)
    ordered = sorted(drawn, key=lambda one: -one.points[-1][1])
    for row, one in enumerate(ordered):
        y = TOP + 8 + row * min(ROW, (HEIGHT - TOP) / len(ordered))
        parts += [f'<circle cx="{WIDTH - RIGHT + 16}" cy="{y}" r="5" fill="{one.colour}"/>',
                  _text(WIDTH - RIGHT + 27, y + 4, one.name, "start")]
    longest = max(len(one.name) for one in drawn)
    return _framed(parts, max(WIDTH, round(WIDTH - RIGHT + 35 + 7.2 * longest)), HEIGHT, title)


def bars(rows: Sequence[tuple[str, dict[str, float]]], colours: dict[str, str], title: str,
         x_label: str) -> str:
    """A bar a row, cut into the named parts of a whole of 100; the legend below them."""
    if not rows:
        return _framed([_text(WIDTH / 2, 30, "nothing to draw")], WIDTH, 60, title)
    left = 30 + 7.2 * max(len(name) for name, _ in rows)
    across = _Scale(0, 100, left, WIDTH - 24)
    bottom = TOP + ROW * len(rows)
    parts = []
    for tick in ticks(0, 100, 5):
        parts += [_line(across(tick), TOP, across(tick), bottom, GRID),
                  _text(across(tick), bottom + 16, number(tick))]
    for row, (name, cut) in enumerate(rows):
        y, at = TOP + ROW * row, 0.0
        parts.append(_text(left - 10, y + ROW / 2 + 4, name, "end"))
        for part, value in cut.items():
            x, end = across(at), across(min(at + value, 100.0))
            parts.append(f'<rect x="{x}" y="{y + 3}" width="{round(max(end - x, 0), 2)}" '
                         f'height="{ROW - 6}" fill="{colours[part]}">'
                         f"<title>{esc(part)} {value:.1f} %</title></rect>")
            at += value
    parts.append(_text((left + WIDTH) / 2, bottom + 36, x_label))
    columns, y = 6, bottom + 58
    for place, (part, colour) in enumerate(colours.items()):
        x = 16 + place % columns * (WIDTH - 32) / columns
        row_y = y + place // columns * ROW
        parts += [f'<circle cx="{x}" cy="{row_y}" r="5" fill="{colour}"/>',
                  _text(x + 11, row_y + 4, part, "start")]
    height = y + (len(colours) + columns - 1) // columns * ROW
    return _framed(parts, WIDTH, height, title)


def stacked(charts: Sequence[tuple[str, str]], title: str) -> str:
    """Pairs of caption and chart as one picture of its own, for light and dark pages."""
    parts, y, width = [STYLE], 0.0, float(WIDTH)
    for caption, chart in charts:
        width = max(width, float(chart.split('width="', 1)[1].split('"', 1)[0]))
        parts.append(_text(12, y + 20, caption, "start", 'font-weight="600" font-size="14"'))
        height = float(chart.split('height="', 1)[1].split('"', 1)[0])
        parts.append(chart.replace("<svg ", f'<svg x="0" y="{y + 30}" ', 1))
        y += 30 + height + 10
    return _framed(parts, width, y, title) + "\n"

"""What all charts share: colours, tooltips, data of a row, sizes. See charts.py and roofline.py."""
from __future__ import annotations

from typing import Any

import altair as alt

from report_page.results import Row, number, where

Figure = tuple[str, dict[str, Any]]  # title, Vega-Lite

# Okabe and Ito's palette, told apart by the colour-blind, then Tol's muted one.
KNOWN = {"scalar": "#7f7f7f", "blas": "#E69F00", "hwy": "#0072B2", "opencl": "#009E73",
         "onednn": "#D55E00", "blis": "#CC79A7", "clblast": "#56B4E9", "numpy": "#B8A800",
         "torch": "#882255", "numba": "#44AA99", "onnxruntime": "#AA4499", "mkl": "#6A5ACD"}
OTHERS = ["#999933", "#CC6677", "#117733", "#88CCEE", "#6699CC", "#AA7744", "#A0522D", "#DDCC77"]
GREY = "#808a94"


def data(values: list[dict[str, Any]]) -> alt.Data:
    """Values inline."""
    return alt.Data(values=values)


def colour(variants: list[str], columns: int = 6) -> alt.Color:
    """A fixed colour per well-known variant; its versions (NAME@...) share it. The legend has so
    many columns."""
    names = list(dict.fromkeys(variants))
    strangers = sorted({n.split("@")[0] for n in names} - set(KNOWN))
    table = KNOWN | {n: OTHERS[i % len(OTHERS)] for i, n in enumerate(strangers)}
    return alt.Color("variant:N", title=None,
                     scale=alt.Scale(domain=names, range=[table[n.split("@")[0]] for n in names]),
                     legend=alt.Legend(orient="bottom", columns=columns, symbolLimit=0,
                                       labelLimit=160))


def tips(*extra: str) -> list[alt.Tooltip]:
    """The text of a row on hovering: its names, then the columns in `extra` (numbers)."""
    names = ["kernel", "variant", "where", "isa", "shape"]
    return ([alt.Tooltip(f"{n}:N") for n in names]
            + [alt.Tooltip(f"{n}:Q", title=n.replace("_", " "), format=".4~g") for n in extra])


def record(row: Row, *columns: str) -> dict[str, Any]:
    """Names of a row and the numbers in `columns`."""
    entry: dict[str, Any] = {n: row.get(n, "") for n in ("kernel", "variant", "isa", "shape")}
    entry["where"] = where(row)
    entry.update({c: number(row, c) for c in columns})
    return entry


def log_scale() -> alt.Scale:
    """A logarithmic axis that ends where the data end, with room for the marks."""
    return alt.Scale(type="log", nice=False, padding=14)


def choice(name: str, label: str, options: list[str], value: str) -> alt.Parameter:
    """A drop-down list above the chart; expressions ask for it by its name."""
    return alt.param(name=name, value=value, bind=alt.binding_select(options=options, name=label))


def spec(chart: alt.TopLevelMixin, height: Any = 340) -> dict[str, Any]:
    """Vega-Lite that fills its container; colours of text and axes are the page's."""
    made = chart.properties(width="container", height=height).to_dict()
    for unwanted in ("config", "$schema"):
        made.pop(unwanted, None)
    return made

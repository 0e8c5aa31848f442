"""Measuring from Python: the program's verbs, their results as pandas frames.

The program (rooflane.program.path()) measures in processes of its own; nothing is computed here.
Options are those of its help, with _ for -: `rooflane bench --help`. A list stands for several
values, True for an option without one. Raises ValueError for what the program calls a wrong
argument, Unavailable for what this machine, build or environment lacks (pandas among it).
"""
from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflane import program, user_variants
from rooflane.errors import Unavailable

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped,unused-ignore]

CHECK_FAILED = 1  # an exit status: a row is FAILED, SUSPECT, ...; the rows say which
# Options with the values of one in one word: alpha,beta. The others are repeated.
LISTS = ("kernel", "variant", "threads", "isa", "peers")
# What a column of the schema becomes.
COLUMN_TYPES = {"string": "string", "integer": "Int64", "number": "float64"}

Option = str | int | float | Path | Sequence[Any] | None


def _pandas() -> Any:
    try:
        import pandas  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise Unavailable("frames need the package pandas") from None
    return pandas


def _words(options: Mapping[str, Option]) -> list[str]:
    """Options as the command line has them."""
    words: list[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, (str, int, float, Path)):
            words += [option, str(value)]
        elif name in LISTS:
            words += [option, ",".join(map(str, value))]
        else:
            words += [word for each in value for word in (option, str(each))]
    return words


def _run(words: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> str:
    """What the program prints. Its notes go to standard error."""
    user_variants.leave_worker()
    try:
        done = program.run(program.path(), words, (0, CHECK_FAILED), environment)
    except program.Refused as refused:
        raise refused.as_error() from None
    sys.stderr.write(done.stderr)
    return done.stdout


def _ask(verb: str, words: Sequence[str | Path]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_run([verb, "--json", *words]))
    return document


@functools.cache
def _folder() -> Path:
    """A folder for rows without a named file, until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="rooflane-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def _column_types(_: str) -> dict[str, str]:
    """A pandas type for every column of a row, by the program's own schema."""
    properties = json.loads(_run(["schema"]))["$defs"]["row"]["properties"]

    def main_type(kind: str | list[str]) -> str:
        return kind if isinstance(kind, str) else next(one for one in kind if one != "null")

    return {name: COLUMN_TYPES[main_type(described["type"])]
            for name, described in properties.items()}


def _typed(frame: pandas.DataFrame) -> pandas.DataFrame:
    types = _column_types(str(program.path()))
    return frame.astype({name: types[name] for name in frame.columns if name in types})


def read(csv: str | os.PathLike[str]) -> pandas.DataFrame:
    """The rows of a file of `rooflane bench --csv`; frame.attrs["csv"] names it."""
    frame = _typed(_pandas().read_csv(csv, dtype="string"))
    frame.attrs["csv"] = str(csv)
    return frame


def _file_of(rows: pandas.DataFrame | str | os.PathLike[str]) -> str:
    """The file behind a frame, or what names one."""
    if isinstance(rows, (str, os.PathLike)):
        return os.fspath(rows)
    if "csv" not in rows.attrs:
        raise ValueError("the frame is none that rooflane.bench or rooflane.read made: its "
                         "attrs have no 'csv'")
    return str(rows.attrs["csv"])


def bench(*problems: str, csv: str | os.PathLike[str] | None = None,
          **options: Option) -> pandas.DataFrame:
    """Verifies and times variants; a row for each, with the CSV's columns (times in ns, rates in
    GFLOP/s and GB/s; docs/reading-a-row.md says what each means).

    problems: "gemm:m=512,n=512,k=512", ranges too; none: the preset. csv: where the rows are kept,
    with their samples beside them; default: a folder that goes when this process ends. Functions
    under @rooflane.variant take part beside all others. A check that fails raises nothing: see
    the columns status and reason.

    rooflane.bench("softmax:rows=64,cols=512", variant=["hwy", "scalar"], threads=1)
    rooflane.bench("gemm:m=n=k=256..1024*2", peers=["numpy", "torch"], launches=1)
    """
    file = Path(csv) if csv is not None else Path(tempfile.mkdtemp(dir=_folder())) / "rows.csv"
    words = [word for problem in problems for word in ("--shape", problem)]
    kernels = {problem.split(":")[0] for problem in problems}
    with user_variants.served(kernels, options) as (guests, environment):
        _run(["bench", *words, *_words({**options, **guests}), "--csv", file], environment)
    return read(file)


def roofline(*rows: pandas.DataFrame | str | os.PathLike[str],
             **options: Option) -> pandas.DataFrame:
    """Judges rows of bench: the CSV's columns, and of rows that were compared verdict (fastest,
    tie, ...), over_scalar and over_best_peer, ratios of speeds: above 1 is faster.

    rows: frames of bench, or files. frame.attrs["classes"]: in one line each, what to use where.
    """
    document = _ask("roofline", [*_words(options), *map(_file_of, rows)])
    frame = _typed(_pandas().DataFrame(document["rows"]))
    for column in ("verdict", "over_scalar", "over_best_peer"):
        values: list[Any] = [None] * len(frame)
        for line in (line for group in document["groups"] for line in group["lines"]):
            told = line[column]
            values[line["row"]] = told["value"] if isinstance(told, dict) else told
        dtype = "string" if column == "verdict" else "float64"
        frame[column] = _pandas().Series(values, dtype=dtype)
    frame.attrs["classes"] = [one["text"] for one in document["classes"]]
    return frame


def compare(old: pandas.DataFrame | str | os.PathLike[str],
            new: pandas.DataFrame | str | os.PathLike[str], **options: Option) -> pandas.DataFrame:
    """What became faster or slower: a row for each that both have, with verdict (SAME, FASTER,
    SLOWER, UNSURE, FAILING, "only OLD", "only NEW"), old_ns, new_ns, ratio = new / old.

    frame.attrs: "counts" of verdicts, and "regressed", whether a row is SLOWER or FAILING.
    """
    document = _ask("compare", [*_words(options), _file_of(old), _file_of(new)])
    frame = _pandas().DataFrame(document["rows"])
    frame.attrs.update(counts=document["counts"], regressed=document["regressed"])
    return frame


def tune(*problems: str, **options: Option) -> pandas.DataFrame:
    """Searches schedules and keeps the winners, which plans use from then on, those of this process
    too; a row for each problem: tuning, kind (winner, tie or undecided), evaluations, ...

    rooflane.tune("gemm:m=n=k=64", threads=1, budget=20)
    """
    from rooflane import _core
    words = [word for problem in problems for word in ("--shape", problem)]
    tuned = _ask("tune", [*words, *_words(options)])["tuned"]
    _core.reread_tuned()
    _core.forget_plans()
    return _pandas().DataFrame(tuned)


def ceilings(**options: Option) -> dict[str, pandas.DataFrame]:
    """Measures this machine's limits, 20 seconds unless seconds= says otherwise. Frames: "fma"
    (peaks in GFLOP/s by math, isa and threads), "bandwidth" (GB/s by footprint in bytes)."""
    measured = _ask("ceilings", _words(options))["ceilings"]
    points = [{"threads": curve["threads"], "device": curve["device"], **point}
              for curve in measured["bandwidth"] for point in curve["points"]]
    return {"fma": _pandas().DataFrame(measured["fma"]), "bandwidth": _pandas().DataFrame(points)}


def doctor(**options: Option) -> dict[str, Any]:
    """What this machine offers and what slows it down, as `rooflane schema doctor` describes."""
    return _ask("doctor", _words(options))

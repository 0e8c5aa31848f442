"""The T4 results format of the auto-tuning community (schema 1.0.0, as Kernel Tuner writes it).

An outcome is an `invalidity`, one to one. Times are milliseconds.
"""
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..tuning import Cost, Outcome
from .interchange import FormatError, Result, exported, imported
from .records import RunRecord, instant_of

SCHEMA = "1.0.0"
INVALIDITY = {Outcome.CORRECT: "correct", Outcome.INCORRECT: "correctness",
              Outcome.REFUSED: "constraints", Outcome.BUILD_ERROR: "compile",
              Outcome.TIMEOUT: "timeout", Outcome.CRASH: "runtime"}
OUTCOME = {invalidity: outcome for outcome, invalidity in INVALIDITY.items()}
UNITS = {"milliseconds": 1.0, "ms": 1.0, "seconds": 1e3, "s": 1e3, "microseconds": 1e-3,
         "us": 1e-3, "nanoseconds": 1e-6, "ns": 1e-6}  # in milliseconds


def write(runs: Sequence[RunRecord]) -> str:
    """The runs, all of one space, as T4. Raises FormatError."""
    told = []
    for one in exported(runs)[1]:
        # Kernel Tuner calls the first two "compilation" and "benchmark", the schema the first
        # "compilation_time"; readers of either find theirs.
        build, cost = one.cost.build * 1e3, one.cost
        told.append({
            "timestamp": one.at.isoformat(), "configuration": one.configuration,
            "times": {"compilation_time": build, "compilation": build,
                      "benchmark": cost.time * 1e3, "framework": 0,
                      "search_algorithm": cost.propose * 1e3, "validation": cost.verify * 1e3,
                      "runtimes": one.times},
            "invalidity": INVALIDITY[one.outcome],
            "correctness": int(one.outcome is Outcome.CORRECT), "objectives": ["time"],
            "measurements": [{"name": "time", "value": one.time, "unit": "ms"}] if one.time
            else []})
    return json.dumps({"results": told, "schema_version": SCHEMA,
                       "metadata": {"timeunit": "milliseconds"}}, indent=1) + "\n"


def _scale(unit: str, fallback: float) -> float:
    if unit and unit not in UNITS:
        raise FormatError(f"unknown unit of time '{unit}'; valid: {', '.join(UNITS)}")
    return UNITS[unit] if unit else fallback


def _result(told: dict[str, Any], scale: float) -> Result:
    if told["invalidity"] not in OUTCOME:
        raise FormatError(f"unknown invalidity '{told['invalidity']}'; valid: {', '.join(OUTCOME)}")
    times = told["times"]
    runtimes = [ms * scale for ms in times.get("runtimes", [])]
    time = sum(runtimes) / len(runtimes) if runtimes else None
    wanted = (told.get("objectives") or ["time"])[0]
    for measured in told.get("measurements", []):
        if measured["name"] == wanted and isinstance(measured["value"], (int, float)):
            time = measured["value"] * _scale(measured.get("unit", ""), scale)
    build = times.get("compilation_time", times.get("compilation", 0))
    return Result(told["configuration"], OUTCOME[told["invalidity"]], time, runtimes, Cost(*(
        float(ms or 0) * scale / 1e3 for ms in (times.get("search_algorithm"), build,
                                                times.get("validation"), times.get("benchmark")))),
        instant_of(told["timestamp"]) if told.get("timestamp") else None)


def read(text: str, source: str) -> RunRecord:
    """One run. `source` names the file, after which a space of others is called."""
    document = json.loads(text)
    scale = _scale((document.get("metadata") or {}).get("timeunit", ""), 1.0)
    name = source.split(".")[0]
    return imported(text, [_result(one, scale) for one in document["results"]], source,
                    {"kernel": name, "variant": "imported", "shape": name, "threads": 0,
                     "device": ""})

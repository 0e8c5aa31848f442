"""The T4 results format of the auto-tuning community (schema 1.0.0, as Kernel Tuner writes it).

An outcome is an `invalidity`, one to one. Times are milliseconds. Values without a field in the
schema (ratio and interval, the default's samples, error, reason, strategy) are among the
measurements; `metadata.rooflane` has space, machine and build. An import of our own files loses the
run of a trial, settings, verdicts and exchanges.
"""
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..tuning import Cost, Outcome, Ratio, Trial
from . import interchange
from .interchange import FormatError, Found, from_ms, one_space, seconds, to_ms
from .records import RunRecord, instant_of, number_of

SCHEMA = "1.0.0"
INVALIDITY = {Outcome.CORRECT: "correct", Outcome.INCORRECT: "correctness",
              Outcome.REFUSED: "constraints", Outcome.BUILD_ERROR: "compile",
              Outcome.TIMEOUT: "timeout", Outcome.CRASH: "runtime"}
OUTCOME = {invalidity: outcome for outcome, invalidity in INVALIDITY.items()}
UNITS = {"milliseconds": 1.0, "ms": 1.0, "seconds": 1e3, "s": 1e3, "microseconds": 1e-3,
         "us": 1e-3, "nanoseconds": 1e-6, "ns": 1e-6}  # in milliseconds
TEXTS = ("reason", "strategy", "source", "note")


def _measurements(trial: Trial, time_ns: float | None) -> list[dict[str, Any]]:
    told: list[tuple[str, Any, str]] = []
    if time_ns is not None and trial.ratio:
        told += [("time", to_ms(time_ns), "ms"), ("ratio", trial.ratio.value, ""),
                 ("ratio_low", trial.ratio.low, ""), ("ratio_high", trial.ratio.high, "")]
    if trial.default_ns:
        told.append(("default_runtimes", [to_ms(ns) for ns in trial.default_ns], "ms"))
    told += [(name, number_of(value), "") for name, value in
             (("error", trial.error), ("threshold", trial.threshold)) if value is not None]
    told += [(name, getattr(trial, name), "") for name in TEXTS if getattr(trial, name)]
    return [{"name": name, "value": value, "unit": unit} for name, value, unit in told]


def write(runs: Sequence[RunRecord]) -> str:
    """The runs, all of one space, as T4. Raises FormatError."""
    one = one_space(runs)
    results = []
    for trial, at in zip(one.trials, one.times):
        # Kernel Tuner calls the first two "compilation" and "benchmark", the schema the first
        # "compilation_time"; readers of either find theirs.
        build, cost = trial.cost.build * 1e3, trial.cost
        results.append({
            "timestamp": at.isoformat(), "configuration": trial.configuration,
            "times": {"compilation_time": build, "compilation": build,
                      "benchmark": cost.time * 1e3, "framework": 0,
                      "search_algorithm": cost.propose * 1e3, "validation": cost.verify * 1e3,
                      "runtimes": [to_ms(ns) for ns in trial.ns]},
            "invalidity": INVALIDITY[trial.outcome],
            "correctness": int(trial.outcome is Outcome.CORRECT),
            "measurements": _measurements(trial, one.time_ns(trial)), "objectives": ["time"]})
    return json.dumps({"results": results, "schema_version": SCHEMA,
                       "metadata": {"timeunit": "milliseconds",
                                    "rooflane": interchange.about(one)}}, indent=1) + "\n"


def _scale(unit: str, fallback: float) -> float:
    if unit and unit not in UNITS:
        raise FormatError(f"unknown unit of time '{unit}'; valid: {', '.join(UNITS)}")
    return UNITS[unit] if unit else fallback


def _trial(number: int, result: dict[str, Any], scale: float) -> tuple[Trial, float | None]:
    if result["invalidity"] not in OUTCOME:
        raise FormatError(f"unknown invalidity '{result['invalidity']}'; valid: "
                          + ", ".join(OUTCOME))
    measured = {one["name"]: one for one in result.get("measurements", [])}
    values = {name: one["value"] for name, one in measured.items()}
    times = result["times"]
    ratio = None
    if all(f"ratio{end}" in values for end in ("", "_low", "_high")):
        ratio = Ratio(values["ratio"], values["ratio_low"], values["ratio_high"])
    cost = Cost(seconds(times.get("search_algorithm", 0) * scale),
                seconds(times.get("compilation_time", times.get("compilation", 0)) * scale),
                seconds(times.get("validation", 0) * scale),
                seconds(times.get("benchmark", 0) * scale))
    ns = [from_ms(ms * scale) for ms in times.get("runtimes", [])]
    objective = measured.get((result.get("objectives") or ["time"])[0])
    time_ns = sum(ns) / len(ns) if ns else None
    if objective and isinstance(objective["value"], (int, float)):
        time_ns = from_ms(objective["value"] * _scale(objective.get("unit", ""), scale))
    trial = Trial(number, interchange.whole_numbers(result["configuration"]),
                  OUTCOME[result["invalidity"]], values.get("strategy", "import"),
                  **{name: values.get(name, "") for name in TEXTS if name != "strategy"},
                  ratio=ratio, ns=ns,
                  default_ns=[from_ms(ms) for ms in values.get("default_runtimes", [])],
                  error=values.get("error"), threshold=values.get("threshold"), cost=cost)
    return trial, time_ns


def read(text: str, source: str) -> list[RunRecord]:
    """One run. `source` names the file, after which a space of others is called."""
    document = json.loads(text)
    metadata = document.get("metadata") or {}
    scale = _scale(metadata.get("timeunit", ""), 1.0)
    found = []
    for number, result in enumerate(document["results"]):
        trial, time_ns = _trial(number, result, scale)
        at = instant_of(result["timestamp"]) if result.get("timestamp") else None
        found.append(Found(trial, at, time_ns))
    names = {"kernel": source.split(".")[0], "variant": "imported",
             "shape": source.split(".")[0], "threads": 0, "device": ""}
    return [interchange.imported(text, found, metadata.get("rooflane") or {}, source, names)]

"""Cache files of Kernel Tuner 1.5, which it can continue from and replay in its simulation mode.

One JSON object that ends with `cache`: "v1,v2" -> the parameters, `time` and costs in milliseconds.
A configuration that failed has `__error__` and, as `time`, one of Kernel Tuner's three markers. The
outcome itself and other values without a key in the format have keys that begin with `rooflane_`;
space, machine and build are under `rooflane`. Kernel Tuner ignores all of these.
"""
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..tuning import Cost, Outcome, Ratio, Trial, text_of
from . import interchange
from .interchange import FormatError, Found, OneSpace, from_ms, one_space, seconds, to_ms
from .records import RunRecord, instant_of, number_of

MARKERS = {Outcome.REFUSED: "InvalidConfig", Outcome.BUILD_ERROR: "CompilationFailedConfig",
           Outcome.INCORRECT: "RuntimeFailedConfig", Outcome.TIMEOUT: "RuntimeFailedConfig",
           Outcome.CRASH: "RuntimeFailedConfig"}
OUTCOMES = {"InvalidConfig": Outcome.REFUSED, "CompilationFailedConfig": Outcome.BUILD_ERROR,
            "RuntimeFailedConfig": Outcome.CRASH, "ErrorConfig": Outcome.CRASH}
FORBIDDEN = ("grid_size_x", "grid_size_y", "grid_size_z", "time")  # as names of tunables
OURS = "rooflane_"
TEXTS = ("strategy", "source", "note", "reason")


def problem_size(shape: str) -> list[int]:
    """The whole numbers of a problem's text: "gemm:m=64,n=32,k=16" -> [64, 32, 16]."""
    values = [item.partition("=")[2] for item in shape.partition(":")[2].split(",")]
    return [int(value) for value in values if value.lstrip("-").isdigit()] or [1]


def kernel_name(one: OneSpace) -> str:
    """How Kernel Tuner is to be told the kernel: "gemm_hwy"."""
    return f"{one.space.kernel}_{one.space.variant}"


def _entry(one: OneSpace, trial: Trial, at: str) -> dict[str, Any]:
    time_ns = one.time_ns(trial)
    entry: dict[str, Any] = dict(trial.configuration)
    if time_ns is None:
        marker = MARKERS.get(trial.outcome, "RuntimeFailedConfig")
        entry |= {"time": marker, "__error__": marker}
    else:
        entry["time"] = to_ms(time_ns)
    entry |= {"times": [to_ms(ns) for ns in trial.ns], "compile_time": trial.cost.build * 1e3,
              "verification_time": trial.cost.verify * 1e3,
              "benchmark_time": trial.cost.time * 1e3, "strategy_time": trial.cost.propose * 1e3,
              "framework_time": 0.0, "timestamp": at}
    more: dict[str, Any] = {"outcome": trial.outcome.value}
    if trial.ratio:
        more |= {"ratio": trial.ratio.value, "ratio_low": trial.ratio.low,
                 "ratio_high": trial.ratio.high}
    if trial.default_ns:
        more["default_times"] = [to_ms(ns) for ns in trial.default_ns]
    more |= {name: number_of(value) for name, value in
             (("error", trial.error), ("threshold", trial.threshold)) if value is not None}
    more |= {name: getattr(trial, name) for name in TEXTS if getattr(trial, name)}
    return entry | {OURS + name: value for name, value in more.items()}


def write(runs: Sequence[RunRecord]) -> str:
    """The runs, all of one space, as a cache file. Raises FormatError."""
    one = one_space(runs)
    # A parameter that a configuration does not read is written as 0: the format requires all of
    # them.
    names = list(dict.fromkeys(name for configuration in
                               [one.space.default, *(trial.configuration for trial in one.trials)]
                               for name in configuration))
    if clash := sorted(set(names) & set(FORBIDDEN)):
        raise FormatError(f"Kernel Tuner takes no tunable of the name '{clash[0]}'")
    values = {name: sorted({trial.configuration.get(name, 0) for trial in one.trials})
              for name in names}
    head = {"device_name": one.space.device or one.machine["cpu"] or one.machine["key"],
            "kernel_name": kernel_name(one), "problem_size": problem_size(one.space.shape),
            "tune_params_keys": names, "tune_params": values, "objective": ["time"],
            "rooflane": interchange.about(one)}
    # Kernel Tuner takes a file for complete when it ends with these very characters, and holds one
    # entry a line.
    lines = [json.dumps(",".join(str(trial.configuration.get(name, 0)) for name in names)) + ": "
             + json.dumps(_entry(one, trial, at.isoformat()))
             for trial, at in zip(one.trials, one.times)]
    return json.dumps(head)[:-1] + ',\n"cache": {\n' + ",\n".join(lines) + "}\n}"


def closed(text: str) -> str:
    """The file with its end, which Kernel Tuner leaves out while it runs and when it is killed."""
    text = text.strip()
    if text.endswith(("}\n}", "}}}")):
        return text
    return text.rstrip(",") + "}\n}"


def _trial(number: int, names: Sequence[str], entry: dict[str, Any]) -> Trial:
    own = {name.removeprefix(OURS): value for name, value in entry.items()
           if name.startswith(OURS)}
    marker = next((value for value in (entry.get("__error__"), entry.get("time"))
                   if isinstance(value, str)), None)
    if marker is not None and marker not in OUTCOMES:
        raise FormatError(f"unknown error '{marker}'; valid: {', '.join(OUTCOMES)}")
    outcome = OUTCOMES[marker] if marker else Outcome.CORRECT
    ratio = None
    if "ratio" in own:
        ratio = Ratio(own["ratio"], own["ratio_low"], own["ratio_high"])
    cost = Cost(*(seconds(entry.get(name)) for name in
                  ("strategy_time", "compile_time", "verification_time", "benchmark_time")))
    return Trial(number, interchange.whole_numbers({name: entry[name] for name in names}),
                 Outcome(own.get("outcome", outcome)), own.get("strategy", "import"),
                 **{name: own.get(name, "") for name in TEXTS if name != "strategy"}, ratio=ratio,
                 ns=[from_ms(ms) for ms in entry.get("times") or []],
                 default_ns=[from_ms(ms) for ms in own.get("default_times", [])],
                 error=own.get("error"), threshold=own.get("threshold"), cost=cost)


def read(text: str, source: str) -> list[RunRecord]:
    """One run. `source` names the file."""
    document = json.loads(closed(text))
    names = document["tune_params_keys"]
    found, seen = [], set()
    for entry in document["cache"].values():
        trial = _trial(len(found), names, entry)
        if text_of(trial.configuration) in seen:
            continue
        seen.add(text_of(trial.configuration))
        at = instant_of(entry["timestamp"]) if entry.get("timestamp") else None
        time = entry.get("time")
        found.append(Found(trial, at, None if isinstance(time, str) or not time
                           else from_ms(time)))
    size = document.get("problem_size", "")
    sizes = size if isinstance(size, list) else [size]
    kernel = document["kernel_name"]
    identity = {"kernel": kernel, "variant": "kernel-tuner",
                "shape": f"{kernel}:size=" + "x".join(map(str, sizes)), "threads": 0,
                "device": document.get("device_name", "")}
    return [interchange.imported(text, found, document.get("rooflane") or {}, source, identity)]

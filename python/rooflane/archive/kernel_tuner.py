"""Cache files of Kernel Tuner 1.5, which it can continue from and replay in its simulation mode.

One JSON object that ends with `cache`: "v1,v2" -> the parameters, `time` and costs in milliseconds.
A configuration that failed has `__error__` and, as `time`, one of Kernel Tuner's three markers.
"""
from __future__ import annotations

import json
from collections.abc import Sequence

from ..tuning import Cost, Outcome
from .interchange import FormatError, Result, exported, imported
from .records import RunRecord, instant_of

MARKERS = {Outcome.REFUSED: "InvalidConfig", Outcome.BUILD_ERROR: "CompilationFailedConfig",
           Outcome.INCORRECT: "RuntimeFailedConfig", Outcome.TIMEOUT: "RuntimeFailedConfig",
           Outcome.CRASH: "RuntimeFailedConfig", Outcome.CORRECT: "RuntimeFailedConfig"}
OUTCOMES = {"InvalidConfig": Outcome.REFUSED, "CompilationFailedConfig": Outcome.BUILD_ERROR,
            "RuntimeFailedConfig": Outcome.CRASH, "ErrorConfig": Outcome.CRASH}
FORBIDDEN = ("grid_size_x", "grid_size_y", "grid_size_z", "time")  # as names of tunables
COSTS = ("strategy_time", "compile_time", "verification_time", "benchmark_time")


def problem_size(shape: str) -> list[int]:
    """The whole numbers of a problem's text: "gemm:m=64,n=32,k=16" -> [64, 32, 16]."""
    values = [item.partition("=")[2] for item in shape.partition(":")[2].split(",")]
    return [int(value) for value in values if value.lstrip("-").isdigit()] or [1]


def write(runs: Sequence[RunRecord]) -> str:
    """The runs, all of one space, as a cache file. Raises FormatError."""
    run, results = exported(runs)
    space, lines = run.space, []
    # A parameter that a configuration does not read is written as 0: the format requires all of
    # them.
    names = list(dict.fromkeys(name for configuration in
                               [space.default, *(one.configuration for one in results)]
                               for name in configuration))
    if clash := sorted(set(names) & set(FORBIDDEN)):
        raise FormatError(f"Kernel Tuner takes no tunable of the name '{clash[0]}'")
    for one in results:
        values = {name: one.configuration.get(name, 0) for name in names}
        cost = (one.cost.propose, one.cost.build, one.cost.verify, one.cost.time)
        entry = {**values, "time": one.time, "times": one.times, "framework_time": 0.0,
                 "timestamp": one.at.isoformat(),
                 **{name: 1e3 * seconds for name, seconds in zip(COSTS, cost)}}
        if one.time is None:
            entry |= {"time": MARKERS[one.outcome], "__error__": MARKERS[one.outcome]}
        lines.append(f"{json.dumps(','.join(map(str, values.values())))}: {json.dumps(entry)}")
    head = {"device_name": space.device or run.machine["cpu"] or run.machine["key"],
            "kernel_name": f"{space.kernel}_{space.variant}",
            "problem_size": problem_size(space.shape), "tune_params_keys": names,
            "tune_params": {name: sorted({one.configuration.get(name, 0) for one in results})
                            for name in names}, "objective": ["time"]}
    # Kernel Tuner takes a file for complete when it ends with these very characters, and holds one
    # entry a line.
    return json.dumps(head)[:-1] + ',\n"cache": {\n' + ",\n".join(lines) + "}\n}"


def read(text: str, source: str) -> RunRecord:
    """One run. `source` names the file. Kernel Tuner leaves its end out while it runs and when it
    is killed."""
    whole = text.strip()
    document = json.loads(whole if whole.endswith(("}\n}", "}}}")) else whole.rstrip(",") + "}\n}")
    names = document["tune_params_keys"]
    found = []
    for entry in document["cache"].values():
        marker = next((value for value in (entry.get("__error__"), entry.get("time"))
                       if isinstance(value, str)), None)
        if marker is not None and marker not in OUTCOMES:
            raise FormatError(f"unknown error '{marker}'; valid: {', '.join(OUTCOMES)}")
        found.append(Result(
            {name: entry[name] for name in names},
            OUTCOMES[marker] if marker else Outcome.CORRECT,
            None if marker else entry.get("time"), entry.get("times") or [],
            Cost(*(float(entry.get(name) or 0) / 1e3 for name in COSTS)),
            instant_of(entry["timestamp"]) if entry.get("timestamp") else None))
    size, kernel = document.get("problem_size", ""), document["kernel_name"]
    sizes = "x".join(map(str, size if isinstance(size, list) else [size]))
    names = {"kernel": kernel, "variant": "kernel-tuner", "shape": f"{kernel}:size={sizes}",
             "threads": 0, "device": document.get("device_name", "")}
    return imported(text, found, source, names)

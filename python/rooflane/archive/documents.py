"""Our own formats: JSON, which holds runs whole, and CSV, an evaluation a row for spreadsheets.

A run keeps its `uid`: imported again, or from another machine's archive, it is the same run, and
only what is missing is added.
"""
from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..tuning import Cost, Exchange, Outcome, Ratio, Space, Trial, configuration_of, text_of
from .interchange import FormatError
from .records import (
    BUILD,
    MACHINE,
    Evaluated,
    RunRecord,
    instant_of,
    number_of,
    space_of,
    space_record,
    trial_of,
    trial_record,
    tunables_of,
    verdict_of,
    verdict_record,
    whole,
)

FORMAT = "rooflane-archive"
VERSION = 1
SPACE = ("kernel", "variant", "shape", "math", "threads", "isa", "device")
OF_RUN = ("strategy", "settings", "started", "finished", "state")
OF_TRIAL = ("number", "time", "outcome", "reason", "strategy", "source", "note")
COSTS = ("propose", "build", "verify", "time")
COLUMNS = ["run_uid", *(f"run_{name}" for name in OF_RUN), *BUILD,
           *(f"machine_{name}" for name in MACHINE), *SPACE, "default", "configuration", *OF_TRIAL,
           "ratio", "ratio_low", "ratio_high", "err_value", "err_threshold",
           *(f"{name}_s" for name in COSTS), "ns", "default_ns"]


def run_record(run: RunRecord) -> dict[str, Any]:
    """A run as JSON."""
    return {"uid": run.uid, "strategy": run.strategy, "settings": run.settings,
            "started": run.started.isoformat(),
            "finished": run.finished.isoformat() if run.finished else None, "state": run.state,
            "machine": run.machine, "build": run.build, "space": space_record(run.space),
            "verdict": verdict_record(run.verdict) if run.verdict else None,
            "evaluations": [trial_record(trial, at) for trial, at in zip(run.trials, run.times)],
            "exchanges": [asdict(exchange) for exchange in run.exchanges]}


def write_json(runs: Sequence[RunRecord]) -> str:
    """Runs of any spaces, whole."""
    return json.dumps({"format": FORMAT, "schema_version": VERSION,
                       "runs": [run_record(run) for run in runs]}, indent=1) + "\n"


def read_json(text: str, source: str) -> list[RunRecord]:
    """The inverse."""
    document = json.loads(text)
    if document["schema_version"] > VERSION:
        raise FormatError(f"its schema is {document['schema_version']}; this version knows "
                          f"{VERSION}")
    runs = []
    for record in document["runs"]:
        trials = [trial_of(one) for one in record["evaluations"]]
        runs.append(RunRecord(
            record["uid"], space_of(record["space"], trials), record["machine"], record["build"],
            record["strategy"], record["settings"], instant_of(record["started"]),
            instant_of(record["finished"]) if record["finished"] else None, record["state"],
            verdict_of(record["verdict"]) if record["verdict"] else None, trials,
            [instant_of(one["time"]) for one in record["evaluations"]],
            [Exchange(**one) for one in record["exchanges"]]))
    return runs


def _cells(run: RunRecord, trial: Trial, at: str) -> list[Any]:
    machine, build = whole(run.machine, MACHINE, "machine"), whole(run.build, BUILD, "build")
    ratio = trial.ratio
    return [run.uid, run.strategy, json.dumps(run.settings), run.started.isoformat(),
            run.finished.isoformat() if run.finished else "", run.state, build["commit"],
            int(build["dirty"]), build["compiler"],
            *(json.dumps(machine[name]) if name in ("caches", "traits") else machine[name]
              for name in MACHINE),
            *(getattr(run.space, name) for name in SPACE), text_of(run.space.default),
            text_of(trial.configuration), trial.number, at, trial.outcome.value, trial.reason,
            trial.strategy, trial.source, trial.note,
            *((ratio.value, ratio.low, ratio.high) if ratio else ("", "", "")),
            number_of(trial.error), trial.threshold,
            *(getattr(trial.cost, name) for name in COSTS), " ".join(map(repr, trial.ns)),
            " ".join(map(repr, trial.default_ns))]


def write_csv(runs: Sequence[RunRecord]) -> str:
    """An evaluation a row, samples as a list in one cell; verdicts, exchanges and the meaning of
    tunables do not fit."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in runs:
        for trial, at in zip(run.trials, run.times):
            writer.writerow(_cells(run, trial, at.isoformat()))
    return file.getvalue()


def _number(cell: str) -> float | None:
    return float(cell) if cell else None


def _trial(row: dict[str, str]) -> Trial:
    ratio = [_number(row[name]) for name in ("ratio", "ratio_low", "ratio_high")]
    return Trial(
        int(row["number"]), configuration_of(row["configuration"]), Outcome(row["outcome"]),
        row["strategy"], row["source"], row["note"], row["reason"],
        Ratio(*ratio) if None not in ratio else None,  # type: ignore[arg-type]
        [float(ns) for ns in row["ns"].split()], [float(ns) for ns in row["default_ns"].split()],
        _number(row["err_value"]), _number(row["err_threshold"]),
        Cost(*(float(row[f"{name}_s"]) for name in COSTS)))


def read_csv(text: str, source: str) -> list[RunRecord]:
    """The inverse, of what a row holds."""
    reader = csv.DictReader(io.StringIO(text))
    if missing := [name for name in COLUMNS if name not in (reader.fieldnames or [])]:
        raise FormatError(f"it has no column '{missing[0]}'")
    of_run: dict[str, list[dict[str, str]]] = {}
    for row in reader:
        of_run.setdefault(row["run_uid"], []).append(row)
    return [_run(uid, rows) for uid, rows in of_run.items()]


def _run(uid: str, rows: list[dict[str, str]]) -> RunRecord:
    row, trials = rows[0], [_trial(row) for row in rows]
    default = configuration_of(row["default"])
    names = {name: int(row[name]) if name == "threads" else row[name] for name in SPACE}
    space = Space(**names, tunables=tunables_of(trial.configuration for trial in trials),
                  default=default, candidates=(), constraints=Evaluated(default, trials))
    machine = {name: row[f"machine_{name}"] for name in MACHINE}
    machine |= {"cores": int(row["machine_cores"]),
                **{name: json.loads(row[f"machine_{name}"]) for name in ("caches", "traits")}}
    build = {"commit": row["commit"], "dirty": row["dirty"] == "1", "compiler": row["compiler"]}
    return RunRecord(uid, space, machine, build, row["run_strategy"],
                     json.loads(row["run_settings"]), instant_of(row["run_started"]),
                     instant_of(row["run_finished"]) if row["run_finished"] else None,
                     row["run_state"], trials=trials,
                     times=[instant_of(row["time"]) for row in rows])

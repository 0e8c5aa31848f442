"""Our own format: JSON, which holds runs whole.

A run keeps its `uid`: imported again, or from another machine's archive, it is the same run, and
only what is missing is added.
"""
from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..tuning import Exchange
from .interchange import FormatError
from .records import (
    RunRecord,
    instant_of,
    space_of,
    space_record,
    trial_of,
    trial_record,
    verdict_of,
    verdict_record,
)

FORMAT = "rooflane-archive"
VERSION = 1


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
            record["uid"], space_of(record["space"]), record["machine"], record["build"],
            record["strategy"], record["settings"], instant_of(record["started"]),
            instant_of(record["finished"]) if record["finished"] else None, record["state"],
            verdict_of(record["verdict"]) if record["verdict"] else None, trials,
            [instant_of(one["time"]) for one in record["evaluations"]],
            [Exchange(**one) for one in record["exchanges"]]))
    return runs

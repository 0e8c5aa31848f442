"""What a worker of a cluster does: one request after the other, with one `rooflane evaluate` of its
own that stays at the target that was asked for last. The other side: cluster.py.

Dask's scheduler and workers import this module, so they run in the tuner's environment.
"""
from __future__ import annotations

import argparse
import hashlib
import json
import threading
from dataclasses import replace
from typing import Any

from rooflane import program
from rooflane.evaluator import Evaluator, Lost, Target

RESOURCE = "rooflane-"  # and the kind of a machine: each has one of it
PARTS = ("build_commit", "compiler", "isa_targets", "traits")  # of doctor's document

_lock = threading.Lock()
_held: dict[tuple[tuple[str, ...], float], Evaluator] = {}  # one


def kind() -> str:
    """The same on machines that may share a search: those of one CPU, build, devices with their
    drivers, and traits, on which the defaults depend. Raises program.Refused."""
    told = program.ask(program.path(), "doctor")
    traits = {name: value for name, value in told["traits"].items() if name != "file"}
    devices = [[device["name"], device["driver"]] for backend in told["device_backends"]
               for device in backend["devices"]]
    facts = [told["tuned"]["machine"]["key"], devices,
             *(({**told, "traits": traits})[part] for part in PARTS)]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]


def _holding(given: argparse.Namespace, options: tuple[str, ...]) -> Evaluator:
    made_with = options, given.timeout
    if made_with not in _held:
        for other in _held.values():
            other.close()
        _held.clear()
        _held[made_with] = Evaluator(*made_with)
    return _held[made_with]


def targets(given: argparse.Namespace, options: tuple[str, ...]) -> list[Target]:
    """What the command's arguments mean here. Raises Wrong, Unavailable, Lost."""
    from rooflane.tuner.command import targets_of
    with _lock:
        return targets_of(given, _holding(given, options))


def serve(given: argparse.Namespace, options: tuple[str, ...], target: Target, op: str,
          *arguments: Any) -> Any:
    """An operation of Evaluator on a target. Raises Refused, Lost."""
    with _lock:
        evaluator = _holding(given, options)
        try:
            if op == "open":
                return replace(evaluator.open(target), constraints=None), evaluator.facts
            if evaluator.target != target:
                evaluator.open(target)
            return getattr(evaluator, op)(*arguments)
        except Lost:
            evaluator.close()
            evaluator.target = None
            raise


def keep(*arguments: Any) -> None:
    """Writes a verdict into this machine's own store; arguments as export.keep takes them."""
    from rooflane.tuner import export
    with Evaluator() as evaluator:
        export.keep(evaluator.store, *arguments)

"""What a worker of a cluster does: one request after the other, with one `rooflane evaluate` of its
own that stays at the target that was asked for last. The other side: cluster.py.

Dask's scheduler and workers import this module, so they run in the tuner's environment.
"""
from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rooflane.evaluator import Evaluator, Lost, Refused, Target
from rooflane.tuning import Space, text_of


@dataclass(frozen=True)
class Request:
    """An operation of Evaluator on a target. `default`: what the worker's default must be, or its
    ratios would be over something else; empty: whatever it is."""
    op: str  # open, check, nearest, evaluate
    options: tuple[str, ...]  # of the program
    timeout: float | None
    target: Target
    default: str = ""
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What came of it."""
    value: Any = None
    failure: str = ""  # refused, lost, differs
    reason: str = ""
    status: str = ""  # of a refused request
    worker: str = ""  # who answers


@dataclass(frozen=True)
class Machine:
    """What a worker says of itself. Workers of equal fingerprints share a search."""
    key: str
    fingerprint: tuple[str, ...]
    targets: tuple[Target, ...]


class _Held:
    """The program and what is open in it."""

    def __init__(self, options: tuple[str, ...], timeout: float | None):
        self.made_with = options, timeout
        self.evaluator = Evaluator(options, timeout)
        self.target: Target | None = None
        self.space: Space | None = None

    def open(self, target: Target) -> Space:
        """The target's space; opened again only where it is not open."""
        if self.space is None or self.target != target:
            self.target, self.space = target, None
            self.space = self.evaluator.open(target)
        return self.space


_held: _Held | None = None
_lock = threading.Lock()


def _holding(options: tuple[str, ...], timeout: float | None) -> _Held:
    global _held
    if _held is not None and _held.made_with != (options, timeout):
        _held.evaluator.close()
        _held = None
    if _held is None:
        _held = _Held(options, timeout)
    return _held


def serve(request: Request) -> Answer:
    """Answers a request; the program starts and opens what it needs."""
    from distributed import get_worker
    return replace(answer_to(request), worker=get_worker().address)


def answer_to(request: Request) -> Answer:
    """The same, on no worker in particular."""
    with _lock:
        held = _holding(request.options, request.timeout)
        try:
            space = held.open(request.target)
            default = text_of(space.default)
            if request.default and default != request.default:
                return Answer(failure="differs", reason=f"its default is {default}, "
                                                        f"not {request.default}")
            if request.op == "open":
                return Answer((replace(space, constraints=None), held.evaluator.facts))
            return Answer(getattr(held.evaluator, request.op)(*request.arguments))
        except Refused as error:
            held.space = None
            return Answer(failure="refused", reason=str(error), status=error.status)
        except (Lost, OSError) as error:
            held.space = None
            return Answer(failure="lost", reason=str(error))


def describe(given: argparse.Namespace, options: tuple[str, ...]) -> Machine | str:
    """This machine's fingerprint, and what the command's arguments mean on it; or why it cannot
    take part."""
    from rooflane.tuner.command import Unavailable, Wrong, targets_of
    if "ROOFLANE_PROGRAM" not in os.environ:
        return "ROOFLANE_PROGRAM is not set there: start it by scripts/tune.py worker"
    try:
        targets = targets_of(given, _holding(options, given.timeout).evaluator)
    except (Wrong, Unavailable, Lost, OSError) as error:
        return str(error)
    reason = ""
    for target in targets:
        opened = answer_to(Request("open", options, given.timeout, target))
        if not opened.failure:
            return _machine(*opened.value, targets)
        reason = reason or opened.reason
    return reason


def _machine(space: Space, facts: dict[str, Any], targets: Sequence[Target]) -> Machine:
    build = facts["build"]
    key = facts["machine"]["key"]
    if space.device:
        key += f", {space.device}"
    return Machine(key, (key, space.isa, str(facts["driver"]), build.get("commit", ""),
                         build.get("compiler", ""), str(build["dirty"])), tuple(targets))


def keep(*arguments: Any) -> None:
    """Writes a verdict into this machine's own store; arguments as export.keep takes them."""
    from rooflane.tuner import export
    with Evaluator() as evaluator:
        export.keep(evaluator.store, *arguments)

"""Evaluates sources by `rooflane judge`, beside the variant that is to be beaten. The problem, its
roof and the machine are those that `rooflane evaluate` reports for that variant.
"""
from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rooflane import judging, program
from rooflane.evaluator import Evaluator, Refused, Step, Target
from rooflane.judging import Judge, Request
from rooflane.source_search.sources import DEFAULT, TUNABLES, Sources
from rooflane.tuning import Configuration, Cost, Outcome, Ratio, Space, Trial

VARIANT = "source"
OUTCOMES = {"INACCURATE": Outcome.INCORRECT, "FAILED": Outcome.INCORRECT,
            "SUSPECT": Outcome.INCORRECT, "CRASH": Outcome.CRASH, "TIMEOUT": Outcome.TIMEOUT,
            "BUILD": Outcome.BUILD_ERROR, **dict.fromkeys(judging.RIGHT, Outcome.CORRECT)}
ATTEMPT = re.compile(r"\(attempt (\d+)\)$")
MOST_ERRORS = 300  # characters of the compiler's, in a reason


class SourceEvaluator:
    """`documents`: what the judge said, by source number and place of the flags. `budget`: seconds
    for timing one."""

    def __init__(self, inner: Evaluator, judge: Judge, budget: float, unsafe: bool = False):
        self.documents: dict[tuple[int, int], dict[str, Any]] = {}
        self.signature = ""
        self.target = Target("", "")
        self.sources = Sources("")
        self._inner, self._judge, self._budget, self._unsafe = inner, judge, budget, unsafe

    @property
    def facts(self) -> dict[str, Any]:
        """Facts of the last open: machine, build, traits, …"""
        return self._inner.facts

    def open(self, target: Target) -> Space:
        """The sources for a target: the template alone. Raises Refused, Lost."""
        space = self._inner.open(replace(target, cache="warm"))  # as the judge times
        self._inner.close()  # nothing of it runs beside the judge
        try:
            self.signature = self._judge.signature(space.kernel, target.shape)
            template = self._judge.template(space.kernel)
        except program.Refused as refused:
            raise Refused(str(refused)) from refused
        self.target, self.documents = target, {}
        self.sources = Sources(template)
        return replace(space, variant=VARIANT, tunables=TUNABLES, default=DEFAULT, candidates=(),
                       constraints=self.sources)

    def remember(self, trials: Sequence[Trial]) -> None:
        """Takes the documents of an interrupted run's trials from the judge's archive."""
        numbers = {int(found[1]): trial for trial in trials
                   if (found := ATTEMPT.search(trial.reason))}
        for document in self._judge.history() if numbers else []:
            if trial := numbers.get(document["attempt"]):
                self.documents[_place(trial.configuration)] = document

    def evaluate(self, configurations: Sequence[Configuration], steps: Sequence[Step] = (),
                 best: float = 1, fresh: bool = False) -> list[Trial]:
        """Judges each; how many rounds it takes is the judge's matter. `fresh`: by other hidden
        shapes and values than before. Raises Refused."""
        del steps, best
        return [self._one(each, self.target.seed + 1000 * fresh) for each in configurations]

    def _one(self, configuration: Configuration, seed: int) -> Trial:
        target, begin = self.target, time.monotonic()
        request = Request(
            target.shape.partition(":")[0], (target.shape,), target.threads,
            against=(target.variant,), seed=seed, budget=self._budget, unsafe=self._unsafe,
            flags=self.sources.flags(configuration))
        try:
            document = self._judge.judge(self.sources.text(configuration["source"]), request)
        except program.Refused as refused:
            raise Refused(str(refused)) from refused
        self.documents[_place(configuration)] = document
        outcome = OUTCOMES.get(document["verdict"], Outcome.INCORRECT)
        beside = judging.against(document, target.variant)[:1]
        ratio, ns, default_ns = None, [], []
        reason = reason_of(document)
        for one in beside if outcome is Outcome.CORRECT else []:
            ratio = _inverse(one)
            ns, default_ns = [one["ns"]], [one["p50_us"] * 1e3]
        if outcome is Outcome.CORRECT and ratio is None:
            reason = f"not timed beside {target.variant}: {reason}"
        return Trial(0, configuration, outcome, reason=f"{reason} (attempt {document['attempt']})",
                     ratio=ratio, ns=ns, default_ns=default_ns,
                     cost=Cost(time=time.monotonic() - begin))


def reason_of(document: dict[str, Any]) -> str:
    """The verdict in a line; of a source that is not compiled, the compiler's first errors."""
    reason = f"{document['verdict']}: {document['reason']}"
    if document["verdict"] == "BUILD":
        errors = [line for line in document["build"]["messages"].splitlines() if "error" in line]
        reason = f"{document['verdict']}: {'; '.join(errors) or document['reason']}"
    return " ".join(reason.split())[:MOST_ERRORS]


def _inverse(peer: dict[str, Any]) -> Ratio | None:
    """The judge's ratio is a speed-up; nothing where the two were never in one round."""
    if peer["ratio"] is None:
        return None
    low, high = peer["ratio_low"], peer["ratio_high"]
    return Ratio(1 / peer["ratio"], 1 / high if high else 0, 1 / low if low else math.inf)


def _place(configuration: Configuration) -> tuple[int, int]:
    return configuration["source"], configuration["flags"]

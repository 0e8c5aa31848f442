"""Asks a model for proposals and counts what comes of them."""
from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rooflane.language_model import answer, prompt
from rooflane.language_model.client import BudgetSpent, Client
from rooflane.language_model.excerpt import excerpt
from rooflane.language_model.prompt import Briefing, Question
from rooflane.tuning import Exchange, History, Proposal, Space, Trial, text_of

OWN = "llm"  # the source of the model's proposals
MOST_FAILURES = 5  # in a row; then the model is not asked again
PROBES = 256  # configurations that are checked once to learn the constraints' words
TOO_LONG = re.compile(r"(?i)context[ _](?:length|window|size)|maximum context|too many tokens")
Log = Callable[[str], None]


@dataclass
class Settings:
    """How a model is asked. `facts`: the machine's traits and roofs, by name, nested or not.
    `source`: the kernel's source in so many characters; None takes it from the tree."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    context: int = prompt.CONTEXT
    answer_tokens: int | None = None  # None: a quarter of the context, 4096 at most
    most_failures: int = MOST_FAILURES
    source: Callable[[int], str] | None = None
    log: Log = lambda line: None


@dataclass
class Counts:
    """What the proposals came to. `used` ones were tried or wait to be."""
    failures: Counter[str] = field(default_factory=Counter)
    proposals: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    trials: Counter[str] = field(default_factory=Counter)  # by source
    best: dict[str, float] = field(default_factory=dict)  # speed-up by source
    repaired: int = 0


class Asker:
    """One model, one space."""

    own = OWN  # what the model's proposals are counted as

    def __init__(self, space: Space, client: Client, settings: Settings):
        self.space, self.client, self.settings = space, client, settings
        self.counts = Counts()
        self.stopped = ""  # why the model is not asked any more
        self._row = 0  # failures
        self._briefing: Briefing | None = None
        self._waiting: dict[str, Exchange] = {}  # by configuration: of proposals not observed yet
        context = settings.context
        client.answer_tokens = min(settings.answer_tokens or min(context // 4, 4096), context // 2)

    def ask(self, history: History, question: Question) -> list[Proposal]:
        """Legal proposals that were not tried; none where the model failed. Sets `stopped`."""
        if self.stopped:
            return []
        exchange = None
        try:
            asked = self._request(history, self._with_budget(question))
            exchange, reply = self.client.ask(asked.messages, asked.schema, asked.tokens)
        except prompt.TooLong as reason:
            return self._failed("context", str(reason))
        except BudgetSpent as reason:
            self._stop(f"budget: {reason}")
            return []
        if reply.failure:
            if reply.failure == "http 4xx" and TOO_LONG.search(reply.text):
                self._brief().factor *= 1.3
            return self._failed(reply.failure, reply.detail, reply.hopeless)
        self._calibrate(asked, exchange)
        proposals, failure, detail = self._read(exchange.answer, history, question)
        if failure:
            exchange.failure = failure
            self.client.record(exchange)
            return self._failed(failure, detail)
        self._row = 0
        for proposal in proposals:
            self._waiting[text_of(proposal.configuration)] = exchange
        return proposals

    def observe(self, trial: Trial) -> None:
        """Notes what came of a trial, and with an exchange the trials that came of it."""
        exchange = self._waiting.pop(text_of(trial.configuration), None)
        source = trial.source or trial.strategy
        self.counts.trials[source] += 1
        if trial.correct:
            self.counts.best[source] = max(self.counts.best.get(source, 0), trial.speed_up)
        if source == self.own:
            self.counts.outcomes[trial.outcome.value] += 1
        if exchange:
            exchange.trials.append(trial.number)
            self.client.record(exchange)

    def statistics(self) -> dict[str, Any]:
        """Plain data for reports and logs."""
        spent, counts = self.client.spent, self.counts
        names = ("used", "clamped", "refused", "repeated")
        return {
            "model": self.client.model, "requests": spent.requests,
            "tokens_in": spent.tokens_in, "tokens_out": spent.tokens_out,
            "seconds": round(spent.seconds, 3), "waited": round(self.client.waited, 3),
            "failures": dict(counts.failures), "repaired": counts.repaired,
            "proposals": {name: counts.proposals[name] for name in names},
            "outcomes": dict(counts.outcomes), "trials": dict(counts.trials),
            "best": {name: round(value, 4) for name, value in counts.best.items()},
            "stopped": self.stopped}

    def _request(self, history: History, question: Question) -> prompt.Asked:
        """What is sent. Raises prompt.TooLong."""
        return prompt.ask(history, self._brief(), question)

    def _read(self, text: str, history: History, question: Question
              ) -> tuple[list[Proposal], str, str]:
        """As many proposals as were asked for, or the class of the failure and its words."""
        try:
            value, repaired = answer.find_json(text)
        except answer.NoJson as reason:
            return [], "refusal" if answer.is_refusal(text) else "no JSON", str(reason)
        names = [tunable.name for tunable in self.space.tunables]
        objects = answer.configurations(value, names)
        best = history.best
        base = best.configuration if best else self.space.default
        tried = {text_of(trial.configuration) for trial in history.trials} | set(self._waiting)
        judged = answer.judge(objects, self.space, base, lambda each: text_of(each) in tried)
        judged = _first(judged, question.count)
        self.counts.repaired += repaired
        proposals = [each.proposal for each in judged if each.proposal]
        count = self.counts.proposals
        count["used"] += len(proposals)
        count["clamped"] += sum(each.clamped for each in judged if each.proposal)
        count["refused"] += sum(bool(each.refused) for each in judged)
        count["repeated"] += sum(each.repeated for each in judged)
        if proposals:
            return proposals, "", ""
        why = [each.refused or "repeated" for each in judged] or ["no configuration in it"]
        return [], "unusable", "; ".join(why[:3])

    def _failed(self, failure: str, detail: str, hopeless: bool = False) -> list[Proposal]:
        self.counts.failures[failure] += 1
        self._row += 1
        self.settings.log(f"language model: {failure}: {detail}")
        if hopeless:
            self._stop(f"{failure}: {detail}")
        elif self._row >= self.settings.most_failures:
            self._stop(f"{self._row} failures in a row, the last: {failure}")
        return []

    def _stop(self, why: str) -> None:
        self.stopped = why
        self.settings.log(f"language model: not asked any more: {why}")

    def _with_budget(self, question: Question) -> Question:
        most = self.client.budget.requests
        left = None if most is None else most - self.client.spent.requests
        return Question(question.count, left)

    def _brief(self) -> Briefing:
        if self._briefing is None:
            names = [tunable.name for tunable in prompt.free(self.space)]

            def from_tree(length: int) -> str:
                return excerpt(self.space.kernel, self.space.variant, names, length)

            self._briefing = Briefing(
                self.space, self.settings.facts, lru_cache(self.settings.source or from_tree),
                rules_of(self.space), self.settings.context, self.client.answer_tokens)
        return self._briefing

    def _calibrate(self, asked: prompt.Asked, exchange: Exchange) -> None:
        """Learns from the server's count how good the estimate is."""
        briefing = self._brief()
        if exchange.tokens_in > prompt.TEMPLATE:
            counted = (exchange.tokens_in - prompt.TEMPLATE) * briefing.factor / asked.tokens
            briefing.factor = min(max(1.05 * counted, 0.5), 3.0)


def _first(judged: list[answer.Judged], count: int) -> list[answer.Judged]:
    """Up to as many proposals; what a model answers beyond is not looked at."""
    places = [at for at, each in enumerate(judged) if each.proposal]
    return judged[:places[count - 1] + 1] if len(places) >= count else judged


def rules_of(space: Space) -> list[str]:
    """The constraints in words: why single steps are refused, from the default and from the nearest
    configurations with other values of selecting tunables. Each reason once, the commonest first.
    """
    others = [{**space.default, tunable.name: value} for tunable in space.tunables
              if tunable.selects for value in tunable.values]
    nearest = space.constraints.nearest(others) if others else []
    starts = [space.default] + [legal.configuration for legal in nearest if legal.configuration]
    steps = [{**start, tunable.name: value} for start in starts for tunable in space.tunables
             for value in tunable.values if start.get(tunable.name) != value]
    steps = steps[::max(1, math.ceil(len(steps) / PROBES))]
    if not steps:
        return []
    checked = space.constraints.check(steps)
    reasons = Counter(" ".join(legal.reason.split())[:160] for legal in checked
                      if legal.configuration is None and legal.reason)
    return [reason for reason, _ in reasons.most_common()]

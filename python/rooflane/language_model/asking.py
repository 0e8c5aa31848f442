"""Asks a model for proposals; what goes wrong is in the exchanges that the client records."""
from __future__ import annotations

import math
import re
from collections import Counter
from functools import lru_cache

from rooflane.language_model import answer, prompt
from rooflane.language_model.client import BudgetSpent, Client
from rooflane.language_model.excerpt import excerpt
from rooflane.language_model.prompt import Briefing, Question
from rooflane.tuning import Exchange, History, Proposal, Space, Trial, text_of

OWN = "llm"  # the source of the model's proposals
PROBES = 256  # configurations that are checked once to learn the constraints' words
TOO_LONG = re.compile(r"(?i)context[ _](?:length|window|size)|maximum context|too many tokens")


class Asker:
    """One model, one space; an Asker of strategies/asked.py."""

    own = OWN  # what the model's proposals are counted as

    def __init__(self, space: Space, client: Client):
        self.space, self.client, self.options = space, client, client.options
        self.stopped = ""  # why the model is not asked any more
        self._row = 0  # failures
        self._briefing: Briefing | None = None
        self._waiting: dict[str, Exchange] = {}  # by configuration: of proposals not observed yet

    def ask(self, history: History, count: int = 1) -> list[Proposal]:
        """Legal proposals that were not tried; none where the model failed. Sets `stopped`."""
        if self.stopped:
            return []
        most = self.options.requests
        left = None if most is None else most - self.client.spent.requests
        try:
            asked = self._request(history, Question(count, left))
            exchange, reply = self.client.ask(asked.messages, asked.schema, asked.tokens)
        except prompt.TooLong:
            return self._failed("context")
        except BudgetSpent as reason:
            self.stopped = f"budget: {reason}"
            return []
        if reply.failure:
            if reply.failure == "http 4xx" and TOO_LONG.search(reply.text):
                self._brief().factor *= 1.3
            return self._failed(reply.failure, reply.hopeless)
        self._calibrate(asked, exchange)
        found = self._read(exchange.answer, history, count)
        if isinstance(found, str):
            exchange.failure = found
            self.client.record(exchange)
            return self._failed(found)
        self._row = 0
        for proposal in found:
            self._waiting[text_of(proposal.configuration)] = exchange
        return found

    def observe(self, trial: Trial) -> None:
        """Notes with an exchange the trials that came of it."""
        exchange = self._waiting.pop(text_of(trial.configuration), None)
        if exchange:
            exchange.trials.append(trial.number)
            self.client.record(exchange)

    def close(self) -> None:
        """Ends the connections."""
        self.client.close()

    def _request(self, history: History, question: Question) -> prompt.Asked:
        """What is sent. Raises prompt.TooLong."""
        return prompt.ask(history, self._brief(), question)

    def _read(self, text: str, history: History, count: int) -> list[Proposal] | str:
        """As many proposals as were asked for, or the class of the failure."""
        try:
            objects = answer.objects_in(text, [one.name for one in self.space.tunables])
        except answer.NoJson:
            return "refusal" if answer.is_refusal(text) else "no JSON"
        best = history.best
        base = best.configuration if best else self.space.default
        tried = {text_of(trial.configuration) for trial in history.trials} | set(self._waiting)
        judged = answer.judge(objects, self.space, base, lambda each: text_of(each) in tried)
        proposals = [each for each in judged if isinstance(each, Proposal)][:count]
        return proposals or "unusable"

    def _failed(self, failure: str, hopeless: bool = False) -> list[Proposal]:
        self._row += 1
        if hopeless:
            self.stopped = failure
        elif self._row >= self.options.most_failures:
            self.stopped = f"{self._row} failures in a row, the last: {failure}"
        return []

    def _brief(self) -> Briefing:
        if self._briefing is None:
            names = [tunable.name for tunable in prompt.free(self.space)]

            def from_tree(length: int) -> str:
                return excerpt(self.space.kernel, self.space.variant, names, length)

            self._briefing = Briefing(
                self.space, self.options.facts, lru_cache(self.options.source or from_tree),
                rules_of(self.space), self.options.context, self.client.answer_tokens)
        return self._briefing

    def _calibrate(self, asked: prompt.Asked, exchange: Exchange) -> None:
        """Learns from the server's count how good the estimate is."""
        briefing = self._brief()
        if exchange.tokens_in > prompt.TEMPLATE:
            counted = (exchange.tokens_in - prompt.TEMPLATE) * briefing.factor / asked.tokens
            briefing.factor = min(max(1.05 * counted, 0.5), 3.0)


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
    checked = space.constraints.check(steps) if steps else []
    reasons = Counter(" ".join(legal.reason.split())[:160] for legal in checked
                      if legal.configuration is None and legal.reason)
    return [reason for reason, _ in reasons.most_common()]

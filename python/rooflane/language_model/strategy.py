"""The strategy `llm`: a language model proposes; where it fails, a heuristic takes the trial, so
that a run always ends."""
from __future__ import annotations

from collections import deque

from rooflane.language_model.asking import OWN, Asker, Settings
from rooflane.language_model.client import Client
from rooflane.language_model.prompt import Question
from rooflane.tuning import History, Proposal, Space, Strategy, Trial

MODES = ("one", "generations")


class LanguageModel:
    """Mode `one` asks before each trial for one configuration and shows the last attempts and the
    best; mode `generations` asks `generations` times for `per_generation` each and shows the five
    best and the last five failures. `stand_in` takes the trials that the model has no usable
    proposal for, and all after the last generation, as far as the run's budget goes. `asker`: who
    asks, where that is another than for values of tunables."""

    def __init__(self, space: Space, client: Client, stand_in: Strategy, mode: str = "one",
                 generations: int = 5, per_generation: int = 3,
                 settings: Settings | None = None, asker: Asker | None = None):
        if mode not in MODES:
            raise ValueError(f"mode '{mode}'; valid: {', '.join(MODES)}")
        if generations < 1 or per_generation < 1:
            raise ValueError("generations and per_generation are at least 1")
        self.name = OWN
        self._stand_in, self._mode = stand_in, mode
        self._left, self._count = generations, per_generation
        self._asker = asker or Asker(space, client, settings or Settings())
        self._queue: deque[Proposal] = deque()

    def propose(self, history: History) -> Proposal:
        """The model's next one, or the stand-in's. Raises Exhausted."""
        while True:
            while self._queue:
                proposal = self._queue.popleft()
                if not history.tried(proposal.configuration):
                    return proposal
            if not self._ask(history):
                break
        proposal = self._stand_in.propose(history)
        return Proposal(proposal.configuration, proposal.source or self._stand_in.name,
                        proposal.note)

    def observe(self, trial: Trial) -> None:
        """The stand-in observes every trial too."""
        self._asker.observe(trial)
        self._stand_in.observe(trial)

    def close(self) -> None:
        """Ends connections and the stand-in."""
        self._asker.client.close()
        self._stand_in.close()

    def _ask(self, history: History) -> bool:
        """Whether the queue holds something new."""
        if self._mode == "one":
            found = self._asker.ask(history, Question())
        elif self._left > 0:
            found = self._asker.ask(history, Question(count=self._count))
            self._left -= bool(found)
        else:
            return False
        self._queue.extend(Proposal(each.configuration, self._asker.own, each.note)
                           for each in found)
        return bool(found)

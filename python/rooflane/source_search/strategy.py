"""The strategy `source`: who writes sources is asked; where no source comes, the best ones are
compiled with other flags, so that a run always ends.
"""
from __future__ import annotations

from typing import Any

from rooflane.language_model.asking import Settings
from rooflane.language_model.client import Client
from rooflane.language_model.strategy import LanguageModel
from rooflane.source_search.asking import SourceAsker
from rooflane.source_search.evaluator import SourceEvaluator
from rooflane.source_search.sources import FLAGS
from rooflane.tuning import Exchange, Exhausted, History, Proposal, Space, Trial


class OtherFlags:
    """The right sources with other flags of the compiler, the fastest first."""

    name = "flags"

    def propose(self, history: History) -> Proposal:
        """Raises Exhausted."""
        right = sorted((trial for trial in history.trials if trial.correct and trial.ratio),
                       key=lambda trial: trial.ratio.value)
        for trial in right:
            for place in range(len(FLAGS)):
                configuration = {**trial.configuration, "flags": place}
                if not history.tried(configuration):
                    return Proposal(configuration, note=FLAGS[place])
        raise Exhausted("every right source was compiled with all flags")

    def observe(self, trial: Trial) -> None:
        """Nothing to do: the history has everything."""

    def close(self) -> None:
        """Nothing was started."""


class SourceWriter(LanguageModel):
    """Modes and fallback are the language model's; the answers are sources."""

    def __init__(self, space: Space, client: Client, settings: Settings,
                 evaluator: SourceEvaluator, to_program: bool,
                 earlier: tuple[Exchange, ...] = (), **mode: Any):
        asker = SourceAsker(space, client, settings, evaluator, to_program, earlier)
        super().__init__(space, client, OtherFlags(), settings=settings, asker=asker, **mode)
        self.name = "source"

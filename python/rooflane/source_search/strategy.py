"""What the strategy `source` does where nobody has a source: the best ones are compiled with other
flags, so that a run always ends.
"""
from __future__ import annotations

from rooflane.source_search.sources import FLAGS
from rooflane.tuning import Exhausted, History, Proposal, Trial


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

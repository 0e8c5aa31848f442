"""`rooflane tune --strategy source`: what differs from a search of schedules. A winner is a source,
judged again on shapes and values that the search has not seen; nothing of it goes into the store of
tuned schedules.
"""
from __future__ import annotations

import argparse
import os

from rooflane import files, program, strategies
from rooflane.archive.store import Archive
from rooflane.evaluator import Evaluator, Target
from rooflane.judging import Judge
from rooflane.source_search.asking import ProgramTransport, SourceAsker
from rooflane.source_search.evaluator import SourceEvaluator
from rooflane.source_search.sources import TEMPLATE
from rooflane.source_search.strategy import OtherFlags
from rooflane.strategies.asked import Asked
from rooflane.tuner.command import Course, Tuning, Wrong, line_of
from rooflane.tuner.search import Search
from rooflane.tuning import (
    Configuration,
    Finalist,
    Outcome,
    Ratio,
    Space,
    Strategy,
    Trial,
    Verdict,
)

FINALISTS = 3
NEAR = 1.1  # times as long as the fastest: may be the faster one in truth
ITSELF = Ratio(1, 1, 1)


class SourceTuning(Tuning):
    """All targets of one call; `evaluator` serves the variant that is to be beaten."""

    evaluator: SourceEvaluator
    schedules = False

    def __init__(self, given: argparse.Namespace, targets: list[Target], archive: Archive,
                 evaluator: Evaluator):
        super().__init__(given, targets, archive, SourceEvaluator(
            evaluator, Judge(program.path()), given.source_budget, given.unsafe))
        self._best: Finalist | None = None  # of the last comparison
        if given.export and len(targets) > 1:
            raise Wrong(f"--export keeps one source, and there are {len(targets)} searches: name "
                        "one problem and one of --threads")
        folder = given.export and given.export.absolute().parent
        if folder and not os.access(folder, os.W_OK):  # before hours of measuring
            raise OSError(f"--export {given.export}: {folder} cannot be written")

    def strategy_of(self, space: Space, options: strategies.Options,
                    trials: list[Trial]) -> Strategy:
        """A language model, or the program of --proposer."""
        transport = ProgramTransport(options.proposer) if options.proposer else None
        options.answer_tokens = options.context // 2  # a source is as long as the text about it
        asker = SourceAsker(space, strategies.client_of(options, transport), self.evaluator,
                            transport is not None)
        self.evaluator.remember(trials)
        return Asked("source", asker, OtherFlags(), options.generations, options.per_generation)

    def seeds_of(self, space: Space) -> list[Configuration]:
        """The template."""
        return [TEMPLATE]

    def decide(self, space: Space, target: Target, search: Search, left: int) -> Verdict:
        """The best sources again: those that came near the fastest, and where all of them turn out
        wrong, the next ones."""
        self.progress.show(f"{space.shape}: the best sources on unseen shapes")
        ranked = [one for one in search.history.ranked() if one.configuration != space.default]
        found = list[Trial]()
        while ranked and not any(one.outcome is Outcome.CORRECT for one in found):
            near = NEAR * ranked[0].ratio.value
            some = [trial.configuration for trial in ranked[:FINALISTS]
                    if trial.ratio.value <= near]
            found += self.evaluator.evaluate(some, fresh=True)
            ranked = ranked[len(some):]
        verdict, self._best = verdict_of(space.default, found)
        return verdict

    def keep(self, course: Course, verdict: Verdict) -> None:
        """Writes the best source into the file of --export, unchanged since it was compared with
        its peers."""
        if self.given.export and self._best:
            files.replace(self.given.export,
                          self.evaluator.sources.text(self._best.configuration["source"]))

    def line_of(self, done: Course) -> str:
        """With what the best source came to."""
        text = line_of(done, describe(done.verdict, self._best, self.evaluator.target.variant))
        if self._best:
            text += f"\n  compiled with {self.evaluator.sources.flags(self._best.configuration)}"
            text += f"; written to {self.given.export}" if self.given.export else ""
        return text


def verdict_of(default: Configuration, found: list[Trial]
               ) -> tuple[Verdict, Finalist | None]:
    """Who is chosen: the fastest source where it is beyond doubt faster than the default; and the
    fastest right source, chosen or not."""
    right = sorted((one for one in found if one.outcome is Outcome.CORRECT and one.ratio),
                   key=lambda one: one.ratio.value)
    finalists = [Finalist(one.configuration, one.ratio) for one in right]
    best = finalists[0] if finalists else None
    itself = Finalist(default, ITSELF)
    if best is None or best.ratio.high >= 1:
        ties = [one for one in finalists if one.ratio.low <= 1]
        return Verdict(default, ITSELF, [itself, *ties]), best
    ties = [one for one in finalists if one.ratio.low <= best.ratio.high]
    return Verdict(best.configuration, best.ratio, ties), best


def describe(verdict: Verdict, best: Finalist | None, to_beat: str) -> str:
    """One line for people."""
    if best is None:
        return f"{to_beat} stays: no source was right on shapes that it had not seen"
    ratio = best.ratio
    text = (f"source {best.configuration['source']} takes {ratio.value:.3f} times as long as "
            f"{to_beat} [{ratio.low:.3f}, {ratio.high:.3f}]")
    if verdict.chosen == best.configuration:
        return text + (f", tied with {len(verdict.tie_set) - 1} other"
                       f"{'s' * (len(verdict.tie_set) > 2)}" if verdict.kind == "tie" else "")
    return f"{text}: {'a tie' if ratio.low <= 1 else f'{to_beat} stays'}"

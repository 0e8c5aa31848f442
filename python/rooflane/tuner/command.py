"""`rooflane tune`: arguments, targets, progress, results."""
from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rooflane import report, strategies
from rooflane.archive.place import ArchiveError
from rooflane.archive.records import plain
from rooflane.archive.store import Archive
from rooflane.evaluator import Evaluator, Lost, Refused, Target
from rooflane.league import spaces
from rooflane.tuner import export, final, worth
from rooflane.tuner.arguments import arguments_of
from rooflane.tuner.search import COMPLETE, HALVING, Limits, Search
from rooflane.tuning import (
    Configuration,
    History,
    Space,
    Strategy,
    Trial,
    Verdict,
    text_of,
)

INTERRUPTED = 130
NOBODY_READS = 141  # as a shell says it of SIGPIPE


class Wrong(Exception):
    """An argument that is wrong: exit status 2."""


class Unavailable(Exception):
    """A request that this machine cannot serve: exit status 3."""


def targets_of(given: argparse.Namespace, evaluator: Evaluator) -> list[Target]:
    """Problems times thread counts. Raises Wrong, Unavailable."""
    if not (given.shape or given.preset or given.model):
        raise Wrong("--shape, --preset or --model says what to tune")
    try:
        listed = evaluator.list(given.shape, given.preset, given.model)
    except Refused as refused:
        raise Wrong(str(refused)) from None
    kernels = {kernel["name"]: kernel for kernel in listed["kernels"]}
    if given.kernel and given.kernel not in kernels:
        raise Wrong(f"-k: unknown kernel '{given.kernel}'; valid: {', '.join(kernels)}")
    weights: dict[str, float] = {}  # problems in their order
    kernel_of = {}
    for problem in listed["problems"]:
        kernel_of[problem["text"]] = problem["kernel"]
        weights[problem["text"]] = weights.get(problem["text"], 0) + 1
    problems = [text for text in weights if given.kernel in (None, kernel_of[text])]
    if not problems:
        raise Wrong(f"none of the problems is of {given.kernel}")
    targets = []
    for problem in problems:
        kernel = kernel_of[problem]
        variants = {v["name"]: v for v in kernels[kernel]["variants"]}
        found = variants.get(given.variant)
        several = given.model or given.preset  # lists of problems of many kinds
        if found is None:
            if several:
                continue
            raise Wrong(f"-v: {kernel} has no variant '{given.variant}'; valid: "
                        + ", ".join(variants))
        if not found["available"]:
            raise Unavailable(f"{given.variant}: {found['reason']}")
        if not found["tunables"]:
            if several:
                continue
            raise Unavailable(f"{kernel} {given.variant} has no tunables")
        for threads in thread_counts(given, found, evaluator):
            targets.append(Target(problem, given.variant, given.math, threads, given.isa,
                                  given.cl_device, given.seed, given.cache, weights[problem]))
    if not targets:
        raise Unavailable(f"{given.variant} has tunables for none of the problems")
    return targets


def thread_counts(given: argparse.Namespace, variant: dict[str, Any],
                  evaluator: Evaluator) -> list[int]:
    """As asked for; else 1 and all cores, all cores alone for a device."""
    if given.threads:
        try:
            counts = [int(word) for word in given.threads.split(",")]
        except ValueError:
            counts = [0]
        if min(counts) < 1:
            raise Wrong(f"--threads {given.threads}: whole numbers from 1 on")
        if max(counts) > len(os.sched_getaffinity(0)):
            raise Unavailable(f"--threads {max(counts)}: this machine has "
                              f"{len(os.sched_getaffinity(0))} logical CPUs")
        return counts
    if variant["threads"] == "one":
        return [1]
    cores = evaluator.cores
    return sorted({1, cores}) if variant["threads"] == "many" else [cores]


class Progress:
    """One line on a terminal, rewritten; nothing elsewhere."""

    def __init__(self, total: int):
        self._total, self._index = total, 0
        self._shown = sys.stderr.isatty()

    def target(self, index: int) -> None:
        """Which target comes now, from 0."""
        self._index = index

    def show(self, text: str) -> None:
        """Replaces the line."""
        if self._shown:
            width = max(20, os.get_terminal_size(sys.stderr.fileno()).columns - 1)
            line = f"[{self._index + 1}/{self._total}] {text}"[:width] if text else ""
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Removes it."""
        self.show("")

    def of_history(self, history: History) -> None:
        """After a trial."""
        of = ("" if history.trials_left is None
              else f" of {len(history.trials) + history.trials_left}")
        best = history.best
        self.show(f"{history.space.shape}: {len(history.trials)} evaluations{of}" + (
            f", best {best.speed_up:.3f}x: {text_of(best.configuration)}" if best else ""))


@dataclass
class Course:
    """The search of one target, while those of other targets go on."""
    target: Target
    space: Space
    facts: dict[str, Any]
    run: int
    search: Search
    verdict: Verdict | None = None  # from the beginning on of a run that had finished before
    is_searched: bool = False
    batches: int = 0
    last: float = 0.0  # the logarithm of the speed-up that the last batch brought

    @property
    def history(self) -> History:
        """Its trials so far."""
        return self.search.history


class Tuning:
    """All targets of one call."""

    search = Search  # how one is searched
    # Schedules or sources are searched. Searches of schedules share their evaluations, and what
    # they decided is final.
    schedules = True

    def __init__(self, given: argparse.Namespace, targets: list[Target], archive: Archive,
                 evaluator: Evaluator):
        self.given, self.targets = given, targets
        self.archive, self.evaluator = archive, evaluator
        self.progress = Progress(len(targets))
        self.deadline = time.monotonic() + given.max_time if given.max_time else None
        self.done: list[Course] = []
        self.failed: list[str] = []
        self.unreached: list[str] = []  # problems that --max-time left no time for

    def run(self) -> int:
        """Searches and last comparisons; the exit status."""
        if self.schedules and len(self.targets) > 1 and self.given.strategy != "all":
            self.run_shared()
        else:
            for index, target in enumerate(self.targets):
                self.progress.target(index)
                self.attempt(target, self.tune, target, len(self.targets) - index)
        return tell_all(self.given, [self])

    def run_shared(self) -> None:
        """All searches together, then the last comparison of each. With --max-time the largest
        saving is compared first: not all may be."""
        courses: list[Course] = []
        try:
            self.share(courses)
            for course in courses:
                course.is_searched = True
            if self.deadline is not None:
                courses.sort(key=lambda one: -worth.saved_by_best(one.history, one.target.weight))
            while courses:
                course = courses.pop(0)
                self.progress.target(self.targets.index(course.target))
                self.attempt(course.target, self.finish, course, len(courses) + 1)
        finally:
            for course in courses:
                self.end(course, None, "interrupted")

    def attempt(self, target: Target, work: Callable[..., None], *arguments: Any) -> bool:
        """A step of one target, whether it succeeds; if it fails the others go on."""
        try:
            work(*arguments)
        except (Refused, Lost) as error:
            self.fail(target, error)
            return False
        return True

    def fail(self, target: Target, error: Exception) -> None:
        """Reports a target that has no result."""
        self.progress.clear()
        self.failed.append(f"{target.shape}: {error}")
        print(f"rooflane: {self.failed[-1]}", file=sys.stderr)

    def tune(self, target: Target, left: int) -> None:
        """One search with its last comparison; so many are left. Raises Refused, Lost."""
        self.finish(self.begin(target), left)

    def begin(self, target: Target) -> Course:
        """Opens a target's space. Raises Refused, Lost."""
        given = self.given
        self.progress.show(f"{target.shape}: the default")
        space = self.evaluator.open(target)
        facts = self.evaluator.facts
        run = self.run_of(space, facts)
        record = self.archive.record_of(run)
        trials, earlier = record.trials, record.exchanges
        options = strategies.options_of(given, {
            "machine": facts["machine"], "traits": facts["traits"], "roof_ns": space.roof_ns})
        options.earlier = tuple(earlier)
        options.on_exchange = lambda exchange: self.archive.record_exchange(run, exchange)
        complete = given.strategy == "all"
        limits = Limits(None if complete else given.budget, None, given.speed_up, given.patience)
        strategy = self.strategy_of(space, options, trials)
        search = self.search(space, self.evaluator, strategy, self.seeds_of(space), limits,
                             self.archive, run, COMPLETE if complete else HALVING, trials,
                             self.progress.of_history)
        return Course(target, space, facts, run, search,
                      record.verdict if self.schedules and record.state == "finished" else None)

    def share(self, courses: list[Course]) -> None:
        """Begins all searches, each with its seeds, then takes batches of evaluations. Each goes to
        the search with the largest expected gain times weight, until none promises anything, or
        the evaluations or the time of all are used up. A search that fails leaves the list, and one
        that was not begun in time never enters it."""
        left = self.given.budget * len(self.targets)
        seconds, begin = self.seconds_for(1), time.monotonic()
        errors = worth.ModelErrors()

        def is_over() -> bool:
            return seconds is not None and time.monotonic() - begin >= seconds

        def take_batch(course: Course, batch: int) -> int:
            """How many evaluations it took; a search that takes fewer is exhausted or at a limit of
            its own."""
            history = course.history
            tried, best = len(history.trials), history.best
            course.search.limits.trials = tried + left
            self.progress.target(self.targets.index(course.target))
            if not self.attempt(course.target, self.take, course, min(left, batch)):
                self.end(course, None, "failed")
                courses.remove(course)
                return 0
            errors.learn(history)
            course.batches += 1
            course.last = (math.log(best.ratio.value / history.best.ratio.value)
                           if best and history.best else 0.0)
            return len(history.trials) - tried

        playing: list[Course] = []
        for index, target in enumerate(self.targets):
            if is_over():
                self.unreached = [one.shape for one in self.targets[index:]]
                break
            self.progress.target(index)
            if not self.attempt(target, lambda one: courses.append(self.begin(one)), target):
                continue
            course = courses[-1]
            left -= len(course.history.trials)
            if course.verdict is None and left > 0:
                left -= take_batch(course, len(course.search.seeds))
                if course in courses:
                    playing.append(course)
        while playing and left > 0 and not is_over():
            course = max(playing, key=lambda one: self.pays(one, errors))
            if self.pays(course, errors) == 0:
                return
            taken = take_batch(course, worth.BATCH)
            left -= taken
            if taken < worth.BATCH:
                playing.remove(course)

    @staticmethod
    def pays(course: Course, errors: worth.ModelErrors) -> float:
        """Seconds that the next batch of a search is expected to save."""
        history = course.history
        gain = worth.gain_of_batch(history, errors, course.batches, course.last)
        return (gain * worth.seconds_of(history) * course.target.weight if gain >= worth.DOUBT
                else 0.0)

    def take(self, course: Course, batch: int) -> None:
        """Goes on with a search. Raises Refused, Lost."""
        self.open_again(course)
        course.search.execute(batch)

    def open_again(self, course: Course) -> None:
        """Another target may have been open. Raises Refused, Lost."""
        if self.evaluator.target != course.target:
            self.evaluator.open(course.target)

    def finish(self, course: Course, left: int) -> None:
        """Searches, unless that was done, and compares; so many targets share the time that is
        left. Raises Refused, Lost."""
        if course.verdict is not None:
            self.end(course, course.verdict, "finished")
            self.tell(course)
            return
        state, verdict = "interrupted", None
        try:
            self.open_again(course)
            if not course.is_searched:
                course.search.limits.seconds = self.seconds_for(left)
                course.search.execute()
            verdict = self.decide(course.space, course.target, course.search, left)
            # Before the run counts as finished: --resume would not keep it again.
            self.keep(course, verdict)
            state = "undecided" if verdict.kind == "undecided" else "finished"
        except (Refused, Lost):
            state = "failed"
            raise
        finally:
            self.end(course, verdict, state)
        course.verdict = verdict
        self.tell(course)

    def tell(self, course: Course) -> None:
        """Reports a target's result."""
        if self.given.report:
            self.report(course)
        self.done.append(course)
        self.progress.clear()
        if not self.given.json:
            print(self.line_of(course), flush=True)

    def end(self, course: Course, verdict: Verdict | None, state: str) -> None:
        """Closes what a search has open."""
        course.search.strategy.close()
        if course.verdict is None:
            self.archive.finish_run(course.run, verdict, state)

    def strategy_of(self, space: Space, options: strategies.Options,
                    trials: list[Trial]) -> Strategy:
        """Who proposes; `trials` are those of the run that goes on."""
        del trials  # the search reports them
        return strategies.make(self.given.strategy, space, self.given.seed, options)

    def seeds_of(self, space: Space) -> list[Configuration]:
        """What is tried first."""
        return strategies.seeds(space)

    def line_of(self, done: Course) -> str:
        """A target's result for people."""
        return line_of(done, final.describe(done.verdict, done.space.default))

    def run_of(self, space: Space, facts: dict[str, Any]) -> int:
        """The archive's number: of the run that goes on or has finished, or of a new one."""
        given = self.given
        settings = {"budget": given.budget, "seed": given.seed, "max_time": given.max_time,
                    "stop_at": given.stop_at, "patience": given.patience}
        machine = {**facts["machine"], "isa": space.isa, "device": space.device,
                   "driver": facts["driver"]}
        run = (self.archive.resumable(space, machine, given.strategy, settings, facts["build"])
               if given.resume else None)
        if run is not None:
            self.archive.resume_run(run)
            return run
        return self.archive.begin_run(space, machine, facts["build"], given.strategy, settings)

    def report(self, done: Course) -> None:
        """Into the folder of --report; where there are several targets, in one of each."""
        folder, target = self.given.report, done.target
        if len(self.targets) > 1:
            name = f"{target.shape} {target.variant} {target.threads}"
            folder /= "".join(c if c.isalnum() or c in "=,-" else "-" for c in name)
        machine, build = done.facts["machine"], done.facts["build"]
        report.write(folder, report.Run(
            done.space, done.history.trials, done.verdict,
            self.archive.record_of(done.run).exchanges,
            self.given.strategy, self.given.seed, machine["cpu"],
            f"rooflane {build.get('commit', '')}".strip()))

    def seconds_for(self, left: int) -> float | None:
        """An equal share of the remaining time; two thirds of it for the search."""
        if self.deadline is None:
            return None
        return max(0.0, self.deadline - time.monotonic()) / left * 2 / 3

    def decide(self, space: Space, target: Target, search: Search, left: int) -> Verdict:
        """The last comparison and the neighbours. Where every configuration's samples are kept,
        those of the comparison are kept too: a process may be lucky with its memory."""
        seconds, history = self.given.final_time, search.history
        no_race = not search.is_exhausted and len(history.trials) < 2
        if self.deadline is not None:
            remaining, look = self.deadline - time.monotonic(), final.seconds_of_look(history)
            no_race |= remaining < look
            seconds = min(seconds, max(look, remaining / left))
        if no_race:
            return final.not_raced(history, self.given.final_time)
        race = final.Final(self.evaluator, space.default, final.best_of(history),
                           self.given.seed)
        if self.given.strategy == "all":
            race.on_evaluation = search.again
        verdict = race.race(seconds, lambda repetition, racing: self.progress.show(
            f"{space.shape}: repetition {repetition + 1} of {racing} finalists"))
        if verdict.chosen != space.default:
            targets = final.neighbours_of(target, space, self.evaluator.facts["sizes"])
            verdict.neighbours = final.try_neighbours(
                self.evaluator, space, targets, verdict.chosen,
                lambda name: self.progress.show(f"neighbour {name}"))
            verdict.exact = not final.serves_neighbours(verdict.neighbours)
        return verdict

    def keep(self, course: Course, verdict: Verdict) -> None:
        """Into the store, the file of --export and that of --export-space. Where the default stays
        because nothing was decided, what is stored stays too."""
        space, facts = course.space, course.facts
        machine = facts["machine"]
        if verdict.kind != "undecided" or verdict.chosen != space.default:
            if not self.given.no_store:
                self.keep_in_store(space, verdict, facts)
            if self.given.export:
                export.keep(self.given.export, machine, space, verdict, facts["build"])
        elif self.given.export:
            export.begin(self.given.export, machine)
        if self.given.export_space:
            spaces.add(self.given.export_space,
                       [spaces.record(space, machine, course.history.trials)])

    def keep_in_store(self, space: Space, verdict: Verdict, facts: dict[str, Any]) -> None:
        """Into the store of the machine that was measured."""
        export.keep(self.evaluator.store, facts["machine"], space, verdict, facts["build"])


def line_of(done: Course, description: str) -> str:
    """A target's result for people, with the verdict in a line."""
    space, history, verdict = done.space, done.history, done.verdict
    correct = sum(trial.correct for trial in history.trials)
    text = (f"{space.title}\n  {description}\n"
            f"  {len(history.trials)} evaluations, {correct} correct; run {done.run}")
    sizes = [n for n in verdict.neighbours if not n.cache]
    if verdict.exact:
        text += ("\n  for this shape only: " + ", ".join(
            [f"{n.shape} {n.outcome.value}" for n in sizes
             if n.outcome.value not in ("correct", "refused")]
            + [f"{n.shape} slower" for n in sizes
               if n.ratio is not None and n.ratio.low > final.SLOWER]))
    for other in verdict.neighbours:
        if other.cache and other.ratio is not None and other.ratio.low > 1:
            text += (f"\n  with {other.cache} caches it is slower than the default: "
                     f"{other.ratio.value:.3f} times its time "
                     f"[{other.ratio.low:.3f}, {other.ratio.high:.3f}]")
    return text


def json_of(done: Course) -> dict[str, Any]:
    """The same for programs."""
    verdict = done.verdict
    return {**export.entry_of(done.space, verdict, done.facts["build"]), "run": done.run,
            "kind": verdict.kind, "seconds_more": round(verdict.seconds_more),
            "evaluations": len(done.history.trials),
            "correct": sum(trial.correct for trial in done.history.trials),
            "tie_set": [text_of(one.configuration) for one in verdict.tie_set],
            "neighbours": [{"shape": n.shape, "cache": n.cache, "outcome": n.outcome.value,
                            "reason": n.reason, "ratio": n.ratio.value if n.ratio else None}
                           for n in verdict.neighbours]}


def tell_all(given: argparse.Namespace, tunings: Sequence[Tuning],
             as_json: Callable[[Course], dict[str, Any]] = json_of) -> int:
    """Reports what all of them found and did not; the exit status."""
    done = [one for tuning in tunings for one in tuning.done]
    failed = [text for tuning in tunings for text in tuning.failed]
    unreached = [shape for tuning in tunings for shape in tuning.unreached]
    if given.json:
        print(json.dumps({"tuned": [as_json(one) for one in done], "failed": failed,
                          "unreached": unreached}, indent=1))
    elif len(done) > 1:
        print(overall(done))
    if unreached:
        print(f"rooflane: --max-time was over before {len(unreached)} of "
              f"{len(unreached) + len(done) + len(failed)} problems were begun", file=sys.stderr)
    return 3 if failed and not done else 1 if failed else 0


def overall(done: list[Course]) -> str:
    """The geometric mean over targets."""
    logs = [-math.log(one.verdict.ratio.value) for one in done]
    changed = sum(one.verdict.chosen != one.space.default for one in done)
    return (f"{len(done)} searches: {math.exp(sum(logs) / len(logs)):.3f} times as fast as the "
            f"default in the geometric mean; another schedule than the default in {changed}")


def space_document(space: Space) -> dict[str, Any]:
    """What --space prints of one."""
    return {"title": space.title, "cache": space.cache, **plain(space),
            "default": text_of(space.default), "prediction_error": space.prediction_error,
            "candidates": [{"tuning": text_of(c.configuration), "predicted_ns": c.predicted_ns}
                           for c in space.candidates]}


def print_spaces(evaluator: Evaluator, targets: list[Target], as_json: bool) -> int:
    """--space."""
    documents = [space_document(evaluator.open(target)) for target in targets]
    if as_json:
        print(json.dumps({"spaces": documents}, indent=1))
        return 0
    for told in documents:
        print(told["title"])
        for tunable in told["tunables"]:
            values = ",".join(map(str, tunable["values"]))
            print(f"  {tunable['name']}: {tunable['meaning']}; {tunable['least']} to "
                  f"{tunable['most']}; tried {values}")
        for candidate in told["candidates"]:
            time_text = (f"{candidate['predicted_ns']:12.0f} ns predicted"
                         if candidate["predicted_ns"] else "not predicted")
            mark = "  default" if candidate["tuning"] == told["default"] else ""
            print(f"  {time_text}  {candidate['tuning']}{mark}")
        if told["prediction_error"]:
            print(f"  standard error of a ratio of predictions: {told['prediction_error']:.0%}")
    return 0


def ended(tuning: Tuning) -> int:
    """Runs it; the exit status."""
    try:
        return tuning.run()
    except KeyboardInterrupt:
        tuning.progress.clear()
        print("interrupted; the same command with --resume goes on", file=sys.stderr)
        return INTERRUPTED
    finally:
        tuning.archive.close()


def main(words: list[str]) -> int:
    """From arguments to the exit status."""
    given = arguments_of(words)
    options = [word for option in ("plugin", "blas") for value in getattr(given, option)
               for word in (f"--{option}", value)]
    try:
        if given.cluster:
            from rooflane.tuner import cluster  # takes a second to import
            return cluster.run(given, options)
        with Evaluator(options, given.timeout) as evaluator:
            targets = targets_of(given, evaluator)
            if given.strategy == "source":
                from rooflane.tuner import source  # needs the packages of language models
                return ended(source.SourceTuning(given, targets, Archive(given.archive),
                                                 evaluator))
            if given.space:
                return print_spaces(evaluator, targets, given.json)
            if given.export_space and given.export_space.exists():
                spaces.read(given.export_space)  # before hours of measuring
            for kept in [] if given.no_store else [evaluator.store]:
                export.require_writable(kept)
            if given.export:
                export.require_writable(given.export)
            return ended(Tuning(given, targets, Archive(given.archive), evaluator))
    except Wrong as error:
        print(f"rooflane: {error}", file=sys.stderr)
        return 2
    except (export.BadFile, spaces.SpaceError) as error:
        print(f"rooflane: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # who reads has seen enough; the archive holds what was found
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOBODY_READS
    except (Unavailable, ArchiveError, Refused, Lost, OSError) as error:
        print(f"rooflane: {error}", file=sys.stderr)
        return 3

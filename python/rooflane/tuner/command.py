"""`rooflane tune`: arguments, targets, progress, results."""
from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from rooflane import program, report, strategies
from rooflane.archive.place import ArchiveError
from rooflane.archive.store import Archive
from rooflane.evaluator import Evaluator, Lost, Refused, Target
from rooflane.league import spaces
from rooflane.tuner import export, final
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


@dataclass
class Done:
    """One target's result, for reports."""
    space: Space
    history: History
    verdict: Verdict | None
    run: int
    facts: dict[str, Any] = field(default_factory=dict)


def ask(*words: str) -> dict[str, Any]:
    """A document of the program. Raises Wrong, Unavailable."""
    try:
        return json.loads(program.run(program.path(), words).stdout)
    except program.Refused as refused:
        error = Wrong if refused.status == program.ARGUMENT else Unavailable
        raise error(str(refused)) from None


def targets_of(given: argparse.Namespace) -> list[Target]:
    """Problems times thread counts. Raises Wrong, Unavailable."""
    if not given.shape and not given.preset:
        raise Wrong("--shape or --preset says what to tune")
    words = [word for option in ("shape", "preset") for value in getattr(given, option)
             for word in (f"--{option}", value)]
    listed = ask("list", "--json", *words)
    kernels = {kernel["name"]: kernel for kernel in listed["kernels"]}
    if given.kernel and given.kernel not in kernels:
        raise Wrong(f"-k: unknown kernel '{given.kernel}'; valid: {', '.join(kernels)}")
    problems = [p for p in listed["problems"] if given.kernel in (None, p["kernel"])]
    if not problems:
        raise Wrong(f"none of the problems is of {given.kernel}")
    targets = []
    for problem in problems:
        variants = {v["name"]: v for v in kernels[problem["kernel"]]["variants"]}
        found = variants.get(given.variant)
        if found is None and not given.plugin:
            raise Wrong(f"-v: {problem['kernel']} has no variant '{given.variant}'; valid: "
                        + ", ".join(variants))
        if found and not found["available"]:
            raise Unavailable(f"{given.variant}: {found['reason']}")
        if found and not found["tunables"]:
            raise Unavailable(f"{problem['kernel']} {given.variant} has no tunables")
        for threads in thread_counts(given, found):
            targets.append(Target(problem["text"], given.variant, given.math, threads, given.isa,
                                  given.cl_device, given.seed))
    return targets


def thread_counts(given: argparse.Namespace, variant: dict[str, Any] | None) -> list[int]:
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
    cores = ask("doctor", "--json")["machine"]["physical_cores"]
    if variant and variant["threads"] == "one":
        return [1]
    return sorted({1, cores}) if variant and variant["threads"] == "many" else [cores]


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
            line = f"[{self._index + 1}/{self._total}] {text}"
            print(f"\r\x1b[K{line[:width]}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Removes it."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def of_history(self, history: History) -> None:
        """After a trial."""
        best = history.best
        text = f"{history.space.shape}: {len(history.trials)} evaluations"
        if history.trials_left is not None:
            text += f" of {len(history.trials) + history.trials_left}"
        if history.seconds_left is not None:
            text += f", {max(0, history.seconds_left):.0f} s left"
        if best is not None:
            text += f", best {best.speed_up:.3f}x: {text_of(best.configuration)}"
        self.show(text)


class Tuning:
    """All targets of one call."""

    search = Search  # how one is searched

    def __init__(self, given: argparse.Namespace, targets: list[Target], archive: Archive,
                 evaluator: Evaluator):
        self.given, self.targets = given, targets
        self.archive, self.evaluator = archive, evaluator
        self.progress = Progress(len(targets))
        self.deadline = time.monotonic() + given.max_time if given.max_time else None
        self.done: list[Done] = []
        self.failed: list[str] = []

    def run(self) -> int:
        """Target by target; the exit status."""
        for index, target in enumerate(self.targets):
            self.progress.target(index)
            try:
                done = self.tune(target, len(self.targets) - index)
            except (Refused, Lost) as error:
                self.progress.clear()
                self.failed.append(f"{target.shape}: {error}")
                print(f"rooflane: {self.failed[-1]}", file=sys.stderr)
                continue
            self.done.append(done)
            self.progress.clear()
            if not self.given.json:
                print(self.line_of(done), flush=True)
        if self.given.json:
            print(json.dumps({"tuned": [json_of(done) for done in self.done],
                              "failed": self.failed}, indent=1))
        elif len(self.done) > 1:
            print(overall(self.done))
        return 3 if self.failed and not self.done else 1 if self.failed else 0

    def tune(self, target: Target, left: int) -> Done:
        """One search with its last comparison. Raises Refused, Lost."""
        given = self.given
        self.progress.show(f"{target.shape}: the default")
        space = self.evaluator.open(target)
        facts = self.evaluator.facts
        run = self.run_of(space, facts)
        trials, earlier = self.archive.trials(run), self.archive.exchanges(run)
        options = strategies.options_of(given, {
            "machine": facts["machine"], "traits": facts["traits"], "roof_ns": space.roof_ns})
        options.earlier = tuple(earlier)
        options.on_exchange = lambda exchange: self.archive.record_exchange(run, exchange)
        complete = given.strategy == "all"
        limits = Limits(None if complete else given.budget, self.seconds_for(left),
                        given.speed_up, given.patience)
        strategy = self.strategy_of(space, options, trials)
        search = self.search(space, self.evaluator, strategy, self.seeds_of(space), limits,
                             self.archive, run, COMPLETE if complete else HALVING, trials,
                             self.progress.of_history)
        state, verdict = "interrupted", None
        try:
            history = search.execute()
            if complete:
                search.confirm()
            verdict = self.decide(space, target, history)
            state = "finished"
        except (Refused, Lost):
            state = "failed"
            raise
        finally:
            strategy.close()
            self.archive.finish_run(run, verdict, state)
        self.keep(space, history, verdict, facts)
        done = Done(space, history, verdict, run, facts)
        if given.report:
            self.report(done, target)
        return done

    def strategy_of(self, space: Space, options: strategies.Options,
                    trials: list[Trial]) -> Strategy:
        """Who proposes; `trials` are those of the run that goes on."""
        del trials  # the search reports them
        return strategies.make(self.given.strategy, space, self.given.seed, options)

    def seeds_of(self, space: Space) -> list[Configuration]:
        """What is tried first."""
        return strategies.seeds(space)

    def line_of(self, done: Done) -> str:
        """A target's result for people."""
        return line_of(done, final.describe(done.verdict, done.space.default))

    def run_of(self, space: Space, facts: dict[str, Any]) -> int:
        """The archive's number: of the run that goes on, or of a new one."""
        given = self.given
        settings = {"budget": given.budget, "seed": given.seed, "max_time": given.max_time,
                    "stop_at": given.stop_at, "patience": given.patience}
        machine = {**facts["machine"], "isa": space.isa, "device": space.device,
                   "driver": facts["driver"]}
        run = (self.archive.unfinished(space, machine, given.strategy, settings)
               if given.resume else None)
        if run is not None:
            self.archive.resume_run(run)
            return run
        return self.archive.begin_run(space, machine, facts["build"], given.strategy, settings)

    def report(self, done: Done, target: Target) -> None:
        """Into the folder of --report; where there are several targets, in one of each."""
        folder = self.given.report
        if len(self.targets) > 1:
            name = f"{target.shape} {target.variant} {target.threads}"
            folder /= "".join(c if c.isalnum() or c in "=,-" else "-" for c in name)
        machine, build = done.facts["machine"], done.facts["build"]
        report.write(folder, report.Run(
            done.space, done.history.trials, done.verdict, self.archive.exchanges(done.run),
            self.given.strategy, self.given.seed, machine["cpu"],
            f"rooflane {build.get('commit', '')}".strip()))

    def seconds_for(self, left: int) -> float | None:
        """An equal share of the remaining time; two thirds of it for the search."""
        if self.deadline is None:
            return None
        return max(0.0, self.deadline - time.monotonic()) / left * 2 / 3

    def decide(self, space: Space, target: Target, history: History) -> Verdict:
        """The last comparison and the neighbours."""
        finalists = final.best_of(history)
        meeting = final.Final(self.evaluator, space.default, finalists)
        meeting.measure(on_repetition=lambda repetition: self.progress.show(
            f"{space.shape}: {len(finalists)} finalists and the default, repetition "
            f"{repetition + 1}"))
        verdict = meeting.verdict()
        if verdict.chosen != space.default:
            shapes = final.neighbours_of(space.problem, self.evaluator.facts["sizes"])
            verdict.neighbours = final.try_neighbours(
                self.evaluator, target, verdict.chosen, shapes,
                lambda shape: self.progress.show(f"neighbour {shape}"))
            verdict.exact = not final.serves_neighbours(verdict.neighbours)
        return verdict

    def keep(self, space: Space, history: History, verdict: Verdict,
             facts: dict[str, Any]) -> None:
        """Into the store, the file of --export and that of --export-space."""
        machine = facts["machine"]
        if not self.given.no_store:
            self.keep_in_store(space, verdict, facts)
        if self.given.export:
            export.keep(self.given.export, machine, space, verdict, facts["build"])
        if self.given.export_space:
            spaces.add(self.given.export_space, [spaces.record(space, machine, history.trials)])

    def keep_in_store(self, space: Space, verdict: Verdict, facts: dict[str, Any]) -> None:
        """Into the store of the machine that was measured."""
        export.keep(self.evaluator.store, facts["machine"], space, verdict, facts["build"])


def line_of(done: Done, description: str) -> str:
    """A target's result for people, with the verdict in a line."""
    space, history, verdict = done.space, done.history, done.verdict
    correct = sum(trial.correct for trial in history.trials)
    text = (f"{space.title}\n  {description}\n"
            f"  {len(history.trials)} evaluations, {correct} correct; run {done.run}")
    wrong = [n for n in verdict.neighbours if n.outcome.value not in ("correct", "refused")]
    if verdict.exact:
        slow = [n.shape for n in verdict.neighbours
                if n.ratio is not None and n.ratio.low > final.SLOWER]
        text += ("\n  for this shape only: "
                 + ", ".join([f"{n.shape} {n.outcome.value}" for n in wrong]
                             + [f"{shape} slower" for shape in slow]))
    return text


def json_of(done: Done) -> dict[str, Any]:
    """The same for programs."""
    verdict = done.verdict
    return {**export.entry_of(done.space, verdict, done.facts["build"]), "run": done.run,
            "kind": verdict.kind, "evaluations": len(done.history.trials),
            "correct": sum(trial.correct for trial in done.history.trials),
            "tie_set": [text_of(one.configuration) for one in verdict.tie_set],
            "neighbours": [{"shape": n.shape, "outcome": n.outcome.value, "reason": n.reason,
                            "ratio": n.ratio.value if n.ratio else None}
                           for n in verdict.neighbours]}


def overall(done: list[Done]) -> str:
    """The geometric mean over targets."""
    import math
    logs = [-math.log(one.verdict.ratio.value) for one in done]
    changed = sum(one.verdict.chosen != one.space.default for one in done)
    return (f"{len(done)} searches: {math.exp(sum(logs) / len(logs)):.3f} times as fast as the "
            f"default in the geometric mean; another schedule than the default in {changed}")


def space_document(space: Space) -> dict[str, Any]:
    """What --space prints of one."""
    return {"title": space.title, "shape": space.shape, "variant": space.variant,
            "threads": space.threads, "isa": space.isa, "device": space.device,
            "math": space.math, "roof_ns": space.roof_ns, "default": text_of(space.default),
            "tunables": [{"name": t.name, "meaning": t.meaning, "least": t.least, "most": t.most,
                          "values": t.values, "selects": t.selects} for t in space.tunables],
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
        targets = targets_of(given)
        with Evaluator(options, given.timeout) as evaluator:
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

"""The search: `git bisect` chooses commits; each is timed against GOOD in one run, and `rooflane
compare` judges."""
from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rooflane import program

from .builds import Builds, Failed, git

CHANGES = ("SLOWER", "FASTER")


@dataclass(frozen=True)
class Judged:
    """A commit against GOOD: SAME, SLOWER, FASTER, UNSURE or FAILING, and the ratio of times with
    its interval where there is one."""
    commit: str
    verdict: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    shape: str = ""


@dataclass(frozen=True)
class Question:
    """What `bench` is asked: arguments that choose problems, variant and threads; seconds for the
    rounds of a problem."""
    words: Sequence[str]
    variant: str
    max_time: float


class Judge:
    """Compares commits with GOOD. `ours` reads the rows: the caller's own program, so that all
    are judged alike."""

    def __init__(self, builds: Builds, good: str, question: Question, ours: Path):
        self.builds, self.good, self.question, self.ours = builds, good, question, ours
        self.known: dict[str, Judged] = {}

    def judged(self, commit: str) -> Judged:
        """The verdict on a commit. UNSURE is asked again with twice the time, twice. Raises
        Failed."""
        if commit not in self.known:
            seconds = self.question.max_time
            found = self._measure(commit, seconds)
            for _ in range(2):
                if found.verdict == "UNSURE":
                    seconds *= 2
                    found = self._measure(commit, seconds)
            self.known[commit] = found
            factor = f", {found.ratio:.3f} times as long as GOOD" if found.ratio else ""
            print(f"bisect: {commit[:12]} is {found.verdict}{factor}", file=sys.stderr, flush=True)
        return self.known[commit]

    def _measure(self, commit: str, seconds: float) -> Judged:
        good, new = self.builds.program(self.good), self.builds.program(commit)
        with tempfile.TemporaryDirectory() as folder:
            rows = Path(folder) / "rows.csv"
            words = ["bench", *self.question.words, "-v", self.question.variant, "--against",
                     f"good={good}", "--max-time", f"{seconds:g}", "--csv", str(rows)]
            done = subprocess.run([new, *words], capture_output=True, text=True, check=False,
                                  stdin=subprocess.DEVNULL)
            if not rows.exists() or done.returncode not in (0, 1):
                raise Failed(f"{commit[:12]}: {program.told(done.stderr, done.returncode)}")
            answer = program.run(self.ours, ["compare", rows, "--against", "good", "--json"],
                                 good=(0, 1)).stdout
        return worst(commit, json.loads(answer)["rows"])


def worst(commit: str, rows: list[dict[str, object]]) -> Judged:
    """One verdict out of those of all rows: the first that applies of FAILING, a change (that of
    the largest ratio either way), UNSURE, SAME."""
    def change(row: dict[str, object]) -> float:
        ratio = row["ratio"]
        value = float(ratio["value"]) if isinstance(ratio, dict) else 1.0
        return max(value, 1 / value) if value > 0 else 1.0

    for verdicts in (("FAILING",), CHANGES, ("UNSURE",), ("SAME",)):
        fitting = [row for row in rows if row["verdict"] in verdicts]
        if fitting:
            row = max(fitting, key=change)
            ratio = row["ratio"] if isinstance(row["ratio"], dict) else {}
            return Judged(commit, str(row["verdict"]), ratio.get("value"), ratio.get("low"),
                          ratio.get("high"), f"{row['kernel']}:{row['shape']}")
    raise Failed(f"{commit[:12]}: no row that both builds measured")


def first_changed(judge: Judge, repository: Path, good: str, bad: str, change: str
                  ) -> tuple[str | None, list[str]]:
    """The first commit in good..bad that differs from `good` by the verdict `change`, and the
    commits that could not be judged; no commit where those leave several. Raises Failed."""
    skipped: list[str] = []
    count = int(git(repository, "rev-list", "--count", f"{good}..{bad}"))
    if count > 1:
        print(f"bisect: {count} commits, about {math.ceil(math.log2(count))} more to build and "
              "time", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git(repository, "worktree", "add", "--no-checkout", "--detach", str(tree), bad)
        try:
            git(tree, "bisect", "start", "--no-checkout", "--term-old=before", "--term-new=after",
                bad, good)
            while True:
                commit = git(tree, "rev-parse", "--verify", "BISECT_HEAD")
                try:
                    verdict = judge.judged(commit).verdict
                except Failed as error:
                    print(f"bisect: {error}", file=sys.stderr, flush=True)
                    verdict = "UNSURE"
                if verdict in ("UNSURE", "FAILING"):
                    skipped.append(commit)
                term = "skip" if commit in skipped else "after" if verdict == change else "before"
                try:
                    told = git(tree, "bisect", term)
                except Failed as error:  # git's status 2: only skipped commits are left
                    if "skip" in str(error):
                        return None, skipped
                    raise
                if "is the first after commit" in told:
                    return told.split()[0], skipped
        finally:
            git(repository, "worktree", "remove", "--force", str(tree))

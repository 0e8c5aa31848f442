"""`rooflane bisect`. See arguments.py."""
from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rooflane import program
from rooflane.errors import Unavailable

from .arguments import arguments_of
from .builds import Builds, Failed, git
from .search import CHANGES, Judge, Judged, Question, first_changed


def main(words: Sequence[str]) -> int:
    """Returns the exit status."""
    given = arguments_of(words)
    try:
        ours = program.path()
        repository = given.repository
        good, bad = (commit_of(repository, name) for name in (given.good, given.bad))
        if good == bad or git(repository, "merge-base", good, bad) != good:
            print(f"rooflane: bisect: {given.good} is not an ancestor of {given.bad}",
                  file=sys.stderr)
            return program.ARGUMENT
    except Failed as error:
        print(f"rooflane: bisect: {error}", file=sys.stderr)
        return program.ARGUMENT
    except Unavailable as error:
        print(f"rooflane: bisect: {error}", file=sys.stderr)
        return program.UNAVAILABLE
    asked = [word for shape in given.shape for word in ("--shape", shape)]
    asked += [word for preset in given.preset for word in ("--preset", preset)]
    asked += ["-k", given.kernel] if given.kernel else []
    question = Question([*asked, "--threads", given.threads], given.variant, given.max_time)
    judge = Judge(Builds(repository, given.build), good, question, ours)
    try:
        ends = judge.judged(bad)
        commit, skipped = None, []
        if ends.verdict in CHANGES:
            commit, skipped = first_changed(judge, repository, good, bad, ends.verdict)
    except (Failed, program.Refused) as error:
        print(f"rooflane: bisect: {error}", file=sys.stderr)
        return 1
    found = judge.known.get(commit or "")
    if given.json:
        print(json.dumps({"good": good, "bad": bad, "ends": asdict(ends), "commit": commit,
                          "found": asdict(found) if found else None,
                          "measured": [asdict(each) for each in judge.known.values()],
                          "skipped": skipped}, indent=1))
    else:
        print(answer(given.good, given.bad, ends, found, skipped))
        if commit:
            print(git(repository, "show", "--stat", "--no-color", commit))
    return 0 if commit or ends.verdict == "SAME" else 1


def commit_of(repository: Path, name: str) -> str:
    """The full hash of a commit. Raises Failed."""
    try:
        return git(repository, "rev-parse", "--verify", f"{name}^{{commit}}")
    except Failed as error:
        raise Failed(f"'{name}' is not a commit of {repository}") from error


def answer(good: str, bad: str, ends: Judged, found: Judged | None, skipped: Sequence[str]) -> str:
    """One sentence, or two."""
    if ends.verdict not in CHANGES:
        return {"SAME": f"{bad} is as fast as {good}: nothing to find.",
                "FAILING": f"{bad} gives a wrong result where {good} passes: speed is not compared."
                }.get(ends.verdict, f"Undecided: {bad} and {good} cannot be told apart, nor shown "
                                    "to be equal. A longer --max-time may decide it.")
    if found is None:
        return (f"{bad} is {ends.verdict} than {good}, but {len(skipped)} commits between them "
                "could not be built or judged: " + ", ".join(each[:12] for each in skipped))
    return (f"{found.commit[:12]} is the first commit that is {found.verdict} than {good}: it "
            f"takes {found.ratio:.3f} times as long [{found.low:.3f}, {found.high:.3f}] on "
            f"{found.shape}.")

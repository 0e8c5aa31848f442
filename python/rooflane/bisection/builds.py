"""The program of a commit, built once and kept in the cache folder."""
from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

# Without tests and Python, and for one instruction set: the quickest build that has the kernels.
BUILD = """set -e
if [ ! -f build/build.ninja ]; then
  meson setup build --buildtype=release -Disa-targets=native -Dpython=disabled -Dtests=false
fi
ninja -C build rooflane"""


class Failed(Exception):
    """A command failed; the text names it, with the end of its output."""


def git(repository: Path, *words: str) -> str:
    """What a git command prints. Raises Failed."""
    done = subprocess.run(["git", "-C", str(repository), *words], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise Failed(f"git {words[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def cache_folder(repository: Path, command: str) -> Path:
    """Where the builds of a repository by a command are kept."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    key = hashlib.sha256(f"{repository.resolve()}\0{command}".encode()).hexdigest()[:16]
    return base / "rooflane" / "bisect" / key


class Builds:
    """One work tree, which goes from commit to commit, so that most files are compiled once; and
    a copy of each program that it gave."""

    def __init__(self, repository: Path, command: str | None):
        self.repository = repository
        self.command = command or BUILD
        self.folder = cache_folder(repository, self.command)
        self.tree = self.folder / "tree"

    def program(self, commit: str) -> Path:
        """The program of a commit (a full hash). Raises Failed where it cannot be built."""
        kept = self.folder / commit
        if not (kept / "rooflane").exists():
            self._check_out(commit)
            print(f"bisect: building {commit[:12]}", file=sys.stderr, flush=True)
            # Its own repository: a build must not see the variables of the caller's.
            clean = {name: value for name, value in os.environ.items()
                     if not name.startswith("GIT_")}
            done = subprocess.run(["sh", "-c", self.command], cwd=self.tree, text=True, env=clean,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, check=False)
            if done.returncode != 0:
                end = "\n".join(done.stdout.splitlines()[-20:])
                raise Failed(f"{commit[:12]} cannot be built:\n{end}")
            self._keep(kept)
        return kept / "rooflane"

    def _check_out(self, commit: str) -> None:
        try:
            git(self.tree, "checkout", "--force", "--detach", commit)
        except Failed:  # no work tree yet, or that of a clone that is gone
            shutil.rmtree(self.tree, ignore_errors=True)
            self.folder.mkdir(parents=True, exist_ok=True)
            git(self.repository, "worktree", "prune")
            git(self.repository, "worktree", "add", "--force", "--detach", str(self.tree), commit)

    def _keep(self, kept: Path) -> None:
        """Copies the program and the library that it loads from its own folder."""
        made = [path for path in (self.tree / "build").glob("*rooflane*")
                if path.is_file() and  # not Meson's folders of objects beside them
                (path.name == "rooflane" or path.name.startswith("librooflane.so"))]
        if all(path.name != "rooflane" for path in made):
            raise Failed("the build made no build/rooflane")
        part = kept.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        for path in made:
            shutil.copy2(path, part / path.name)
        part.rename(kept)

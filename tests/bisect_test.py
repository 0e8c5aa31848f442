#!/usr/bin/env python3
"""`rooflane bisect` finds planted slow-downs: bisect_test.py SOURCE_DIR.

The repositories and their builds are made up: a commit's program is a script that says how fast the
commit is, and so is the one that compares. So verdicts are exact, and nothing is timed.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import skip

ROOT = Path()
SHAPE = ("--shape", "softmax:rows=4,cols=8")
# A build: the program writes the speeds of GOOD and of its own commit where bench writes rows. A
# commit's file `speed` has its time; `broken` fails to build.
BUILD = """set -e
if [ "$(cat speed)" = broken ]; then echo "no such file"; exit 1; fi
mkdir -p build/librooflane.so.0.p build/rooflane.p
cp speed build/librooflane.so.0
cat >build/rooflane <<'END'
#!/usr/bin/env python3
import pathlib, sys
words = sys.argv[1:]
good = pathlib.Path(words[words.index("--against") + 1].removeprefix("good="))
programs = (good, pathlib.Path(sys.argv[0]))
times = [(path.parent / "librooflane.so.0").read_text() for path in programs]
pathlib.Path(words[words.index("--csv") + 1]).write_text(" ".join(times))
END
chmod +x build/rooflane
echo built >>"$BUILT"
"""
COMPARE = """#!/usr/bin/env python3
import json, pathlib, sys
old, new = pathlib.Path(sys.argv[2]).read_text().split()
verdict, ratio = "UNSURE", None
if new != "unsure":
    value = float(new) / float(old)
    ratio = {"value": value, "low": value, "high": value}
    verdict = "SLOWER" if value > 1.02 else "FASTER" if value < 0.98 else "SAME"
print(json.dumps({"rows": [{"verdict": verdict, "ratio": ratio, "kernel": "softmax",
                            "shape": "rows=4,cols=8"}]}))
"""


class Bisect(unittest.TestCase):
    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = Path(place.name)
        self.repository = self.folder / "repository"
        self.built = self.folder / "built"
        compare = self.folder / "compare"
        compare.write_text(COMPARE, encoding="utf-8")
        compare.chmod(0o755)
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"),
                            "ROOFLANE_PROGRAM": str(compare), "BUILT": str(self.built)}

    def git(self, *words: str) -> str:
        return subprocess.run(["git", "-C", self.repository, *words], capture_output=True,
                              text=True, check=True).stdout.strip()

    def commits(self, *speeds: object) -> list[str]:
        """A repository with a commit for each speed; their hashes."""
        self.repository.mkdir()
        self.git("init", "-q")
        self.git("config", "user.name", "nobody")
        self.git("config", "user.email", "nobody@example.org")
        hashes = []
        for number, speed in enumerate(speeds):
            (self.repository / "speed").write_text(f"{speed}", encoding="utf-8")
            (self.repository / "number").write_text(f"{number}", encoding="utf-8")
            self.git("add", ".")
            self.git("commit", "-q", "-m", f"commit {number}")
            hashes.append(self.git("rev-parse", "HEAD"))
        return hashes

    def bisect(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, ROOT / "scripts/bisect_commits.py", *words],
                              capture_output=True, text=True, check=False, env=self.environment,
                              cwd=self.repository)

    def found(self, hashes: list[str]) -> dict[str, object]:
        done = self.bisect(f"{hashes[0]}..{hashes[-1]}", *SHAPE, "--build", BUILD, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    def test_the_commit_of_a_slow_down_is_found_wherever_it_is(self) -> None:
        for place in (1, 4, 8):
            with self.subTest(place):
                hashes = self.commits(*([100] * place), *([130] * (9 - place)))
                self.assertEqual(self.found(hashes)["commit"], hashes[place])
                subprocess.run(["rm", "-rf", self.repository], check=True)

    def test_so_is_that_of_a_speed_up(self) -> None:
        hashes = self.commits(100, 101, 100, 70, 70, 71)
        self.assertEqual(self.found(hashes)["commit"], hashes[3])

    def test_it_says_how_many_builds_follow(self) -> None:
        hashes = self.commits(*[100] * 5, *[130] * 4)
        done = self.bisect(f"{hashes[0]}..{hashes[-1]}", *SHAPE, "--build", BUILD)
        self.assertIn("bisect: 8 commits, about 3 more to build and time\n", done.stderr)

    def test_a_change_the_other_way_on_the_path_is_passed_over(self) -> None:
        hashes = self.commits(100, 80, 80, 80, 150, 150)
        self.assertEqual(self.found(hashes)["commit"], hashes[4])

    def test_a_commit_that_cannot_be_built_or_judged_is_skipped(self) -> None:
        hashes = self.commits(100, 100, 100, "broken", "unsure", 100, 130, 130)
        answer = self.found(hashes)
        self.assertEqual(answer["commit"], hashes[6])

    def test_skipped_commits_before_the_change_are_named(self) -> None:
        hashes = self.commits(100, "broken", "broken", 130)
        done = self.bisect(f"{hashes[0]}..{hashes[-1]}", *SHAPE, "--build", BUILD)
        self.assertEqual(done.returncode, 1, done.stderr)
        for each in hashes[1:3]:
            self.assertIn(each[:12], done.stdout)
        self.assertIn("no such file", done.stderr)

    def test_equal_ends_are_said_to_be_equal(self) -> None:
        hashes = self.commits(100, 130, 101)
        done = self.bisect(f"{hashes[0]}..{hashes[-1]}", *SHAPE, "--build", BUILD)
        self.assertEqual((done.returncode, done.stderr.count("building")), (0, 2))
        self.assertIn("nothing to find", done.stdout)

    def test_ends_that_cannot_be_told_apart_are_undecided(self) -> None:
        hashes = self.commits(100, "unsure")
        done = self.bisect(f"{hashes[0]}..{hashes[-1]}", *SHAPE, "--build", BUILD)
        self.assertEqual(done.returncode, 1)
        self.assertIn("Undecided", done.stdout)

    def test_builds_are_kept_and_the_repository_is_left_as_it_was(self) -> None:
        hashes = self.commits(*[100] * 4, *[130] * 4)
        (self.repository / "mine").write_text("not committed", encoding="utf-8")
        before = self.git("status", "--porcelain", "--branch"), self.git("rev-parse", "HEAD")
        first = self.found(hashes)
        built = self.built.read_text(encoding="utf-8")
        second = self.found(hashes)
        self.assertEqual(first, second)
        self.assertEqual(self.built.read_text(encoding="utf-8"), built)
        self.assertEqual((self.git("status", "--porcelain", "--branch"),
                          self.git("rev-parse", "HEAD")), before)
        self.assertEqual(self.git("worktree", "list").count("bisect"), 1)  # the cache's own

    def test_wrong_requests_are_refused(self) -> None:
        hashes = self.commits(100, 130)
        for words, said in (
                ((f"{hashes[1]}..{hashes[0]}", *SHAPE), "not an ancestor"),
                (("nothing..HEAD", *SHAPE), "nothing"),
                (("HEAD", *SHAPE), "GOOD..BAD"),
                (("a...b", *SHAPE), "GOOD..BAD"),
                ((f"{hashes[0]}..{hashes[1]}",), "--shape or --preset")):
            with self.subTest(words):
                done = self.bisect(*words)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn(said, done.stderr)
                self.assertFalse(self.built.exists())


if __name__ == "__main__":
    ROOT = Path(sys.argv.pop(1)).resolve()
    skip.main(sys.argv[:1])

#!/usr/bin/env python3
"""What keeps figures over time: tracking_test.py ROOFLANE_WITH_FAKES ROOFLANE SOURCE_DIR

`--format bmf` by Bencher's schema, `--format asv` read by asv itself, the ReFrame check under
ReFrame's local scheduler, and the steps of the GitHub Actions example, run here in their order.
Runs itself in an environment with these packages, made from PyPI; exits with 77 (skipped) where
PyPI cannot be reached.
"""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import restart
import skip

PACKAGES = ["asv==0.6.6", "jsonschema==4.26.0", "pyyaml==6.0.4", "reframe-hpc==4.10.4"]
FAKES, ROOFLANE, ROOT = Path(), Path(), Path()
BRIEF = ["--threads", "1", "--min-time", "0.0001", "--max-time", "0.05", "--launches", "1",
         "--ceilings-time", "0.1"]
PROBLEMS = ["--shape", "softmax:rows=4,cols=9", "--shape", "gemm:m=5,n=7,k=3"]
# https://bencher.dev/bmf.json
METRIC = {"type": "object", "required": ["value"],
          "properties": {"value": {"type": "number"}, "lower_value": {"type": "number"},
                         "upper_value": {"type": "number"}}}
BMF = {"$schema": "http://json-schema.org/draft-07/schema", "type": "object", "patternProperties": {
    ".+": {"type": "object", "patternProperties": {".+": METRIC}}}}


def tool(name: str) -> str:
    """A program of the environment."""
    return str(Path(sys.executable).with_name(name))


class Tracking(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_here(self, *command: str | Path, status: int | None = 0,
                 **variables: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([str(word) for word in command], cwd=self.folder, text=True,
                              capture_output=True, check=False, stdin=subprocess.DEVNULL,
                              env={**os.environ, **variables}, timeout=300)
        if status is not None:
            self.assertEqual(done.returncode, status, f"{command}\n{done.stdout}\n{done.stderr}")
        return done


class Formats(Tracking):
    """Rows of one run: three that passed, one that did not, one that its variant refuses."""

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.csv = Path(folder.name) / "rows.csv"
        cls.bmf = Path(folder.name) / "metrics.json"
        cls.bench = subprocess.run(
            [FAKES, "bench", *PROBLEMS, "-v", "scalar,hwy,fake-zeros,fake-unsupported", *BRIEF,
             "--csv", cls.csv, "--format", "bmf", "--output", cls.bmf],
            text=True, capture_output=True, check=False)

    def roofline(self, *words: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
        return self.run_here(FAKES, "roofline", self.csv, *words, status=status)

    def test_bmf_is_valid_by_the_schema_of_bencher(self) -> None:
        import jsonschema
        self.assertEqual(self.bench.returncode, 1, self.bench.stderr)  # the fake's failure
        metrics = json.loads(self.bmf.read_text(encoding="utf-8"))
        jsonschema.validate(metrics, BMF)
        self.assertEqual({"/".join(name.split("/")[:3]) for name in metrics},
                         {"softmax/scalar/rows=4,cols=9", "softmax/hwy/rows=4,cols=9",
                          "gemm/scalar/m=5,n=7,k=3", "gemm/hwy/m=5,n=7,k=3"})
        for name, measures in metrics.items():
            self.assertLess(len(name), 1024)  # Bencher's limit
            latency = measures["latency"]
            flops, count = measures["throughput"], 2 * 5 * 7 * 3 if "gemm" in name else 5 * 36
            self.assertAlmostEqual(flops["value"] * latency["value"] / 1e9, count, 6)
            for metric in measures.values():
                if "lower_value" in metric:
                    self.assertLessEqual(metric["lower_value"], metric["value"])
                    self.assertLessEqual(metric["value"], metric["upper_value"])

    def test_rows_that_did_not_pass_are_named(self) -> None:
        self.assertRegex(self.bench.stderr, r"(?m)^note: \d rows? left out, FAILED: .*fake-zeros/")
        self.assertRegex(self.bench.stderr, r"(?m)^note: \d rows? left out, UNSUPPORTED: ")
        self.assertIn("left out, FAILED", self.roofline("--format", "bmf").stderr)

    def test_rows_of_a_file_give_what_bench_wrote(self) -> None:
        printed = self.roofline("--format", "bmf").stdout
        self.assertEqual(printed, self.bmf.read_text(encoding="utf-8"))

    def test_bench_prints_bmf_alone(self) -> None:
        done = self.run_here(FAKES, "bench", *PROBLEMS, "-v", "hwy", *BRIEF, "--format", "bmf")
        self.assertEqual(len(json.loads(done.stdout)), 2)

    def test_wrong_requests_are_refused(self) -> None:
        for words, says in ((["--format", "bmx"], "nearest is 'bmf'"),
                            (["--output", "x"], "--output needs --format"),
                            (["--format", "asv"], "--format asv needs --output FOLDER"),
                            (["--format", "bmf", "--output", "no/such/file"], "--output: "),
                            (["--format", "asv", "--output", self.csv], "is not a writable folder"),
                            (["--format", "asv", "--output", "r", "--commit", "12ab"],
                             "allowed is a whole hash"),
                            (["--format", "bmf", "--explain"], "cannot be combined with")):
            with self.subTest(words):
                self.assertIn(says, self.roofline(*words, status=2).stderr)

    def commits(self) -> list[str]:
        """A repository with two commits, and asv's settings for it."""
        settings = {"version": 1, "project": "kernels", "repo": "repository", "branches": ["main"],
                    "environment_type": "existing", "results_dir": "results", "html_dir": "html"}
        (self.folder / "asv.conf.json").write_text(json.dumps(settings), encoding="utf-8")
        git = ["git", "-C", "repository", "-c", "user.name=n", "-c", "user.email=n@example.com"]
        self.run_here("git", "init", "-q", "-b", "main", "repository")
        for message in ("one", "two"):
            self.run_here(*git, "commit", "-q", "--allow-empty", "-m", message)
        return self.run_here(*git, "log", "--reverse", "--format=%H").stdout.split()

    def test_asv_compares_and_publishes_the_rows(self) -> None:
        old, new = self.commits()
        self.roofline("--format", "asv", "--output", "results", "--commit", old)
        result, = self.folder.glob(f"results/*/{old[:8]}-*.json")
        document = json.loads(result.read_text(encoding="utf-8"))
        # Known to 1 %, whatever else the machine did; and the same rows at the new commit, three
        # times as slow.
        columns = document["result_columns"]
        around = {"stats_ci_99_a": 0.99, "stats_ci_99_b": 1.01, "stats_q_25": 0.995,
                  "stats_q_75": 1.005}
        place = {column: columns.index(column) for column in ("result", *around)}
        for values in document["results"].values():
            for column, factor in around.items():
                if place[column] < len(values):
                    values[place[column]][0] = values[place["result"]][0] * factor
        result.write_text(json.dumps(document), encoding="utf-8")
        for values in document["results"].values():
            for at in place.values():
                if at < len(values):
                    values[at][0] *= 3
        document["commit_hash"] = new
        result.with_name(result.name.replace(old[:8], new[:8])).write_text(
            json.dumps(document), encoding="utf-8")
        compared = self.run_here(tool("asv"), "compare", old, new).stdout
        slower = re.findall(r"(?m)^\| \+ .*\| +3 \| (?:gemm|softmax)/", compared)
        self.assertEqual(len(slower), 4, compared)
        self.run_here(tool("asv"), "publish")
        index = json.loads((self.folder / "html/index.json").read_text(encoding="utf-8"))
        self.assertEqual(set(index["revision_to_hash"].values()), {old, new})
        names = [name for name in index["benchmarks"] if name.startswith(("gemm/", "softmax/"))]
        self.assertEqual(len(names), 4)
        self.assertEqual(len(list(self.folder.glob("html/graphs/**/softmax_hwy_*.json"))), 2)

    def test_runs_add_to_the_results_of_a_commit(self) -> None:
        commit = "0123456789" * 4
        asv = ["--format", "asv", "--output", "results", "--commit", commit]
        self.roofline(*asv)
        self.run_here(FAKES, "bench", "--shape", "softmax:rows=3,cols=5", "-v", "scalar", *BRIEF,
                      "--csv", "other.csv", *asv)
        result, = self.folder.glob(f"results/*/{commit[:8]}-*.json")
        self.assertEqual(len(json.loads(result.read_text(encoding="utf-8"))["results"]), 5)
        benchmarks = (self.folder / "results/benchmarks.json").read_text(encoding="utf-8")
        self.assertEqual(len(json.loads(benchmarks)), 5 + 1)  # and the version
        result.write_text("{}", encoding="utf-8")
        self.assertIn("is not an asv file", self.roofline(*asv, status=2).stderr)


class ReFrame(Tracking):
    def check(self, *words: str, status: int) -> str:
        example = ROOT / "examples/reframe"
        return self.run_here(
            tool("reframe"), "-C", example / "settings.py", "-c", example / "rooflane_check.py",
            "--prefix", self.folder, "-n", "softmax", "-r", "--performance-report", "--nocolor",
            "-S", f"RooflaneCheck.program={ROOFLANE}",
            "-S", f"RooflaneCheck.options={' '.join(BRIEF)}", *words, status=status,
            TMPDIR=str(self.folder)).stdout

    def test_the_check_runs_under_the_local_scheduler(self) -> None:
        report = self.check("-S", "RooflaneCheck.least_share=0.001", status=0)
        self.assertIn("[  PASSED  ]", report)
        self.assertRegex(report, r"roof_share.*%")
        log, = self.folder.glob("perflogs/node/cores/*.log")
        self.assertIn("latency", log.read_text(encoding="utf-8"))

    def test_a_reference_that_is_missed_fails(self) -> None:
        self.assertIn("failed to meet reference",
                      self.check("-S", "RooflaneCheck.least_share=1e6", status=1))


class Actions(Tracking):
    """The steps of the workflow with a program that measures briefly and a build that is done."""

    def setUp(self) -> None:
        super().setUp()
        for path, text in (("scripts/build.sh", "#!/bin/sh\n"),
                           ("build/rooflane", f'#!/bin/sh\nif [ "$1" = bench ]; then set -- "$@" '
                            f'{" ".join([*BRIEF, *PROBLEMS])} --benchmark_filter="rows=4,|m=5,"; fi'
                            f'\nexec {ROOFLANE} "$@"\n')):
            (self.folder / path).parent.mkdir(exist_ok=True)
            (self.folder / path).write_text(text, encoding="utf-8")
            (self.folder / path).chmod(0o755)

    def run_steps(self) -> tuple[list[tuple[str, int]], str]:
        """Each step with its status, and the summary; steps behind a failing one are not run."""
        import yaml
        path = ROOT / "examples/github-actions/rooflane.yml"
        job, = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
        ran = []
        for step in job["steps"]:
            if "run" not in step:
                continue
            done = self.run_here("bash", "-e", "-c", step["run"], status=None,
                                 GITHUB_STEP_SUMMARY="summary.md", GITHUB_OUTPUT="output.txt")
            ran.append((step["name"], done.returncode))
            if done.returncode != 0:
                break
        summary = (self.folder / "summary.md").read_text(encoding="utf-8")
        (self.folder / "summary.md").unlink()
        return ran, summary

    def test_the_second_run_is_compared_with_the_first(self) -> None:
        ran, summary = self.run_steps()
        self.assertEqual({status for _, status in ran}, {0}, ran)
        self.assertEqual([name for name, _ in ran],
                         ["Build", "Name the machine", "Bench", "Compare", "Keep the rows"])
        self.assertIn("| hwy |", summary)
        said = (self.folder / "output.txt").read_text(encoding="utf-8")
        self.assertRegex(said, r"^slug=[a-z0-9-]+\n")
        ran, summary = self.run_steps()
        self.assertEqual({status for _, status in ran}, {0}, ran)
        self.assertRegex(summary, r"^\*\*2 rows: .*(UNSURE|SAME)")

    def test_a_row_that_fails_since_fails_the_job(self) -> None:
        self.run_steps()
        # Bench prints the same rows, but one of them fails now.
        program = self.folder / "build/rooflane"
        program.write_text(
            '#!/bin/sh\nif [ "$1" != bench ]; then exec ' + str(ROOFLANE) + ' "$@"; fi\n'
            "sed 's/,PASSED,/,FAILED,/' rows/rows.csv > new.csv\n",
            encoding="utf-8")
        ran, summary = self.run_steps()
        self.assertEqual(ran[-1], ("Compare", 1))
        self.assertIn("FAILING", summary)


if __name__ == "__main__":
    FAKES, ROOFLANE, ROOT = (Path(word).resolve() for word in sys.argv[1:4])
    restart.in_environment("tracking-tests", PACKAGES)
    skip.main(sys.argv[:1])

#!/usr/bin/env python3
"""`bench --ladder`, `bench --fusion` and rungs as tunings, as a user types them:
ladder_cli_test.py ROOFLANE.

Needs Python's standard library only. Every test runs in an empty folder of its own.
"""
import csv
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from typing import Any

import skip

ROOFLANE = ""
SHAPES = {
    "gemm": "gemm:m=48,n=50,k=52",
    "softmax": "softmax:rows=8,cols=300",
    "layernorm": "layernorm:rows=8,cols=300",
    "attention": "attention:batch=1,heads=2,q_len=20,kv_len=40,head_dim=16,causal=1",
}
QUICK = ["--min-time", "0.001", "--max-time", "0.05", "--launches", "1",
         "--ceilings-time", "0.5"]  # or what comes near the roof may seem to be above it


class Ladder(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def call(self, *arguments: str) -> tuple[int, str, str]:
        result = subprocess.run([ROOFLANE, *arguments], cwd=self.folder.name, text=True,
                                capture_output=True, timeout=240)
        return result.returncode, result.stdout, result.stderr

    def succeed(self, *arguments: str) -> str:
        status, out, err = self.call(*arguments)
        self.assertEqual(status, 0, f"{arguments}\n{out}\n{err}")
        return out

    def refuse(self, words: str, *arguments: str) -> None:
        """Status 2, the words on standard error, nothing on standard output."""
        status, out, err = self.call(*arguments)
        self.assertEqual((status, out), (2, ""), f"{arguments}\n{out}\n{err}")
        self.assertIn(words, err)

    def rows(self, name: str) -> list[dict[str, str]]:
        with open(os.path.join(self.folder.name, name), newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def all_rungs(self, of: str = "hwy") -> dict[str, list[dict[str, Any]]]:
        """The rungs of each kernel's variant of that name, where it is here and has some."""
        kernels = json.loads(self.succeed("list", "--json"))["kernels"]
        return {kernel["name"]: variant["ladder"] for kernel in kernels
                for variant in kernel["variants"]
                if variant["name"] == of and variant["available"] and variant["ladder"]}

    def ladders(self, of: str = "hwy") -> dict[str, list[dict[str, Any]]]:
        """The rungs of those that --ladder measures: the rung `separate` is for --fusion."""
        return {kernel: [rung for rung in rungs if rung["name"] != "separate"]
                for kernel, rungs in self.all_rungs(of).items()}

    def test_every_rung_of_every_kernel_is_measured_and_printed(self) -> None:
        ladders = self.ladders()
        self.assertEqual(set(ladders), set(SHAPES))
        for kernel, rungs in ladders.items():
            out = self.succeed("bench", "--ladder", "-v", "hwy", "--shape", SHAPES[kernel],
                               "--threads", "1", "--csv", f"{kernel}.csv", *QUICK)
            lines = out.splitlines()
            self.assertIn("x before", out)
            for step, rung in enumerate(rungs):
                start, = (i for i, text in enumerate(lines) if text.startswith(f"{step} "))
                # A long idea goes on in lines that hold nothing else.
                told = [lines[start], *itertools.takewhile(lambda text: text.startswith("   "),
                                                           lines[start + 1:])]
                self.assertIn(rung["name"], told[0])
                self.assertIn(" ".join(rung["idea"].split()), " ".join(" ".join(told).split()))
            rows = self.rows(f"{kernel}.csv")
            self.assertEqual([row["tuning"] for row in rows[:-1]],
                             [f"step={step}" for step in range(len(rungs))])
            self.assertFalse(rows[-1]["tuning"].startswith("step="))
            self.assertEqual({(row["variant"], row["status"]) for row in rows}, {("hwy", "PASSED")})
            # From the file alone the same table follows, and the summary holds the variant only.
            summary = self.succeed("roofline", f"{kernel}.csv")
            self.assertIn(out.strip(), summary)
            self.assertRegex(summary, rf"(?m)^{kernel} .* hwy +1 of 1\b")

    def test_rungs_of_an_opencl_device_have_a_ladder_of_their_own(self) -> None:
        rungs = self.ladders("opencl").get("softmax")
        if not rungs:
            self.skipTest(skip.no_device(ROOFLANE))
        out = self.succeed("bench", "--ladder", "--shape", SHAPES["softmax"], "--threads", "1",
                           "--csv", "rows.csv", *QUICK)
        self.assertEqual((out.count("ladder of hwy"), out.count("ladder of opencl")), (1, 1))
        rows = [row for row in self.rows("rows.csv") if row["variant"] == "opencl"]
        self.assertEqual([row["tuning"] for row in rows[:-1]],
                         [f"step={step}" for step in range(len(rungs))])
        for row in rows:
            self.assertEqual(row["status"], "PASSED")
            self.assertGreater(float(row["roof_pct"]), 0)
            self.assertIn(row["device"], out)

    def test_without_a_file_the_table_alone_goes_to_standard_output(self) -> None:
        out = self.succeed("bench", "--ladder", "-v", "hwy", "--shape", SHAPES["softmax"],
                           "--threads", "1", *QUICK)
        self.assertNotIn("schema_version", out)
        self.assertIn("ladder of hwy", out)

    def test_isa_targets_have_tables_of_their_own(self) -> None:
        out = self.succeed("bench", "--ladder", "-v", "hwy", "--shape", SHAPES["softmax"],
                           "--threads", "1", "--isa", "AVX2,SSE4", "--csv", "rows.csv", *QUICK)
        self.assertEqual(out.count("ladder of hwy"), 2)
        rows = self.rows("rows.csv")
        keys = {(row["tuning"], row["isa"]) for row in rows}
        self.assertEqual(len(keys), len(rows))

    def test_a_run_is_resumed_where_rungs_were_measured(self) -> None:
        request = ["bench", "--ladder", "-v", "hwy", "--shape", SHAPES["layernorm"], "--threads",
                   "1", "--csv", "rows.csv", *QUICK]
        self.succeed(*request)
        before = self.rows("rows.csv")
        self.succeed(*request, "--resume")
        self.assertEqual(self.rows("rows.csv"), before)

    def test_default_runs_hold_no_rung(self) -> None:
        for kernel in SHAPES:
            planned = self.succeed("bench", "--dry-run", "-k", kernel)
            self.assertIn("variant=hwy", planned)
            self.assertNotIn("step", planned)

    def test_the_default_ladder_holds_every_rung_of_every_kernel(self) -> None:
        planned = self.succeed("bench", "--ladder", "--dry-run").splitlines()
        for kernel, rungs in self.ladders().items():
            for step in range(len(rungs)):
                self.assertTrue(any(line.startswith(kernel + ":") and f"tuning=step={step}" in line
                                    for line in planned), f"{kernel} {step}")

    def test_run_and_verify_take_a_rung(self) -> None:
        for kernel, rungs in self.ladders().items():
            out = self.succeed("verify", "-v", "hwy", "--shape", SHAPES[kernel], "--threads", "1",
                               "--tuning", f"hwy:step={len(rungs) - 1}")
            self.assertIn("PASSED", out)
            self.assertIn("step", out)
        self.succeed("inputs", "softmax", "--shape", SHAPES["softmax"], "--out", "problem")
        for step in range(len(self.ladders()["softmax"])):
            self.succeed("run", "softmax", "-v", "hwy", "--in", "x=problem/x.npy", "--out",
                         f"y={step}.npy", "--tuning", f"hwy:step={step}")

    def test_what_is_refused(self) -> None:
        gemm = ["--shape", SHAPES["gemm"]]
        most = len(self.all_rungs()["gemm"]) - 1
        for verb in ["bench", "verify"]:
            self.refuse(f"allowed is an integer from 0 to {most}", verb, *gemm, "--tuning",
                        f"hwy:step={most + 1}")
            self.refuse("stands alone", verb, *gemm, "--tuning", "hwy:step=1,mc=96")
            self.refuse("step", verb, *gemm, "--tuning", "scalar:step=0")
        self.refuse("has no ladder; with one: hwy", "bench", "--ladder", *gemm, "-v", "scalar")
        self.refuse("--tuning has no place", "bench", "--ladder", *gemm, "--tuning", "hwy:mc=96")
        self.refuse("--tuning has no place", "bench", "--fusion", *gemm, "--tuning", "hwy:mc=96")
        self.refuse("give one", "bench", "--fusion", "--ladder", *gemm)
        self.refuse("has no rung that does apart what it fuses; with one: hwy", "bench", "--fusion",
                    *gemm, "-v", "scalar")

    def test_fused_and_separate_stand_in_one_group_with_what_the_roof_allows(self) -> None:
        shape = SHAPES["gemm"] + ",epilogue=bias+gelu"
        out = self.succeed("bench", "--fusion", "--shape", shape, "--threads", "1", "--csv",
                           "rows.csv", *QUICK)
        rows = self.rows("rows.csv")
        step = [rung["name"] for rung in self.all_rungs()["gemm"]].index("separate")
        self.assertEqual({row["variant"] for row in rows}, {"hwy"})
        self.assertEqual({row["status"] for row in rows}, {"PASSED"})
        self.assertEqual(rows[0]["tuning"], f"step={step}")
        # The variant's own choice comes last; before it come those that differ in one decision.
        self.assertEqual([row["tuning_source"] for row in rows],
                         ["given"] * (len(rows) - 1) + ["model"])
        own = set(rows[-1]["tuning"].split(","))
        changed = [{text.split("=")[0] for text in set(row["tuning"].split(",")) - own}
                   for row in rows[1:-1]]
        self.assertTrue(any(keys <= {"mr", "nr"} for keys in changed), changed)
        line = next(text for text in out.splitlines() if re.search(r" separate  +[0-9]", text))
        fused = 4 * (48 * 52 + 52 * 50 + 48 * 50 + 50)
        self.assertEqual(float(rows[-1]["bytes"]), fused)
        # Two passes read and write c once more each.
        self.assertIn(f"{fused / 1024:.4g} KiB", out)
        self.assertIn(f"{(fused + 2 * 2 * 4 * 48 * 50) / 1024:.4g} KiB", out)
        self.assertRegex(line, r"[0-9.]+x( \[[0-9.]+, [0-9.]+\])?.*[0-9.]+x$")

    def test_of_a_gate_two_products_and_a_pass_are_counted_and_the_json_has_it(self) -> None:
        self.succeed("bench", "--fusion", "--shape", "gemm:m=48,n=50,k=52,gate=1", "--threads", "1",
                     "--csv", "rows.csv", "--json", "rows.json", *QUICK)
        with open(os.path.join(self.folder.name, "rows.json"), encoding="utf-8") as file:
            document = json.load(file)
        apart = next(f for f in document["fusions"] if f["changed"] == "separate")
        product = 4 * (48 * 52 + 52 * 50 + 48 * 50)
        self.assertEqual(apart["bytes_fused"], product + 4 * 52 * 50)
        self.assertEqual(apart["bytes_other"], 2 * product + 3 * 4 * 48 * 50)
        self.assertGreater(apart["roof_gain"], 1)
        self.assertEqual(document["rows"][apart["fused"]]["tuning_source"], "model")
        self.assertIn("step=", document["rows"][apart["other"]]["tuning"])

    def test_the_preset_of_fusion_holds_fused_and_separate(self) -> None:
        planned = self.succeed("bench", "--fusion", "--dry-run", "--threads", "1").splitlines()
        cases = [text for text in planned if text.startswith("gemm:")]
        self.assertGreater(len(cases), 4)
        own = [text for text in cases if "tuning=" not in text]
        self.assertEqual(len(own), sum("tuning=step=" in text for text in cases))
        self.assertGreater(len(cases), 2 * len(own))


if __name__ == "__main__":
    ROOFLANE = os.path.abspath(sys.argv[1])
    skip.main(sys.argv[:1] + sys.argv[2:])

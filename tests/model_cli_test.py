#!/usr/bin/env python3
"""`rooflane model` as a user types it: every model of the library at its smallest size, swaps,
levels, files, and arguments and model files that are wrong. model_cli_test.py ROOFLANE
ROOFLANE_WITH_FAKES.
"""
import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import skip
from command_line import CommandLine, main

MODELS = sorted(path.stem for path in
                (Path(__file__).resolve().parent.parent / "bench" / "models").glob("*.txt"))
QUICK = ["--size", "tiny", "--threads", "1", "--max-time", "0.05", "--ceilings", "ceilings.json"]

SOFTMAX = b"model mine\ninput x [2,3]\noutput y [2,3]\nstep s softmax x=x y=y\n"


class Model(CommandLine):
    ceilings = ""

    def setUp(self) -> None:
        super().setUp()
        if not Model.ceilings:  # measured once for all tests
            self.succeed("ceilings", "--seconds", "0.5", "--threads", "1", "--json",
                         "ceilings.json")
            Model.ceilings = self.read("ceilings.json").decode()
        self.write("ceilings.json", Model.ceilings.encode())

    def rows(self, name: str) -> list[dict[str, str]]:
        return list(csv.DictReader(self.read(name).decode().splitlines()))

    def test_every_model_of_the_library_is_verified_and_measured(self):
        self.assertGreater(len(MODELS), 0)
        for model in MODELS:
            with self.subTest(model):
                out = self.succeed("model", model, *QUICK, "--csv", "rows.csv")
                self.assertRegex(out, r"verified: \d+ calls")
                self.assertRegex(out, r"(?m)^whole: PASSED ")
                self.assertNotIn("FAILED", out)
                rows = self.rows("rows.csv")
                phases = {row["step"].split("/")[0] for row in rows}
                for phase in phases:
                    whole = [row for row in rows if row["step"] == phase]
                    steps = [row for row in rows if row["step"].startswith(phase + "/")]
                    self.assertEqual(len(whole), 1)
                    self.assertEqual(whole[0]["kernel"], "model")
                    for row in steps:
                        self.assertLess(0, float(row["share_pct"]))
                    self.assertEqual(int(whole[0]["calls"]),
                                     sum(int(row["calls"]) for row in steps))
                self.assertEqual({row["preset"] for row in rows}, {model})
                self.assertEqual({row["status"] for row in rows} - {"INACCURATE"}, {"PASSED"})

    def test_swaps_are_predicted_and_measured(self):
        out = self.succeed("model", "block", *QUICK, "--what-if", "gemm=scalar,softmax=scalar",
                           "--swap", "layernorm=scalar", "--csv", "rows.csv")
        self.assertRegex(out, r"(?m)^layernorm +layernorm +scalar ")
        proofs = self.rows("rows.csv.swaps.csv")
        self.assertEqual([proof["swap"] for proof in proofs],
                         ["gemm=scalar", "softmax=scalar", "gemm=scalar,softmax=scalar"])
        memory = self.rows("rows.csv.memory.csv")
        self.assertEqual([row["step"] for row in memory], ["linear", "softmax", "layernorm"])
        for row in memory:
            self.assertLessEqual(int(row["live_bytes"]), int(row["arena_bytes"]))
        for proof in proofs:
            predicted, measured = float(proof["predicted"]), float(proof["measured"])
            self.assertGreater(predicted, 0)
            self.assertAlmostEqual(100 * (measured - predicted),
                                   float(proof["difference_points"]), delta=0.1)
            self.assertLessEqual(float(proof["predicted_lo"]), float(proof["predicted_hi"]))

    def test_rows_are_read_by_the_other_verbs(self):
        self.succeed("model", "block", *QUICK, "--csv", "rows.csv")
        self.assertIn("softmax", self.succeed("roofline", "rows.csv"))
        # One process shows no differences between processes: nothing is sure.
        self.assertIn("4 rows: 4 UNSURE", self.succeed("compare", "rows.csv", "rows.csv"))

    def test_levels_and_growth(self):
        out = self.succeed("model", "block", *QUICK, "--set", "batch=8", "--levels")
        for level in ("scalar", "blas", "hwy"):
            self.assertRegex(out, rf"(?m)^{level} +\d of 3 ")
        self.assertRegex(out, r"growth of run with batch: 1: .*8: .*slope on log-log axes -?\d")
        self.assertRegex(out, r"buffers: [\d.]+ KiB in one arena")

    def test_a_dry_run_lists_the_steps(self):
        out = self.succeed("model", "block", "--size", "tiny", "--set", "batch=3", "--dry-run")
        self.assertIn("batch=3,inputs=24,hidden=17", out)
        self.assertRegex(out, r"linear +1 +gemm:m=3,n=17,k=24")

    def test_tensors_are_saved(self):
        self.succeed("model", "block", *QUICK, "--save", "tensors")
        run = json.loads(self.read("tensors/model.json"))["phases"]["run"]
        self.assertGreater(run["bounds"]["y"], 0)
        self.assertEqual(run["symbols"]["batch"], 5)
        for name in ("linear", "gamma", "beta", "run.x", "run.y"):
            self.assertTrue(self.read(f"tensors/{name}.npy").startswith(b"\x93NUMPY"), name)

    def test_a_model_from_a_file(self):
        self.write("mine.txt", SOFTMAX)
        out = self.succeed("model", "mine.txt", "--max-time", "0.05", "--ceilings",
                           "ceilings.json", "--threads", "1")
        self.assertTrue(re.search(r"mine run", out), out)

    def test_wrong_models_give_one_line(self):
        wrong = {
            b"": ["no model"],
            b"model m\nstep s": ["bad.txt: line 2"],
            SOFTMAX[:-12]: ["bad.txt: line 4", "softmax"],
            SOFTMAX.replace(b"[2,3]", b"[2,", 1): ["line 2", "not closed"],
            SOFTMAX.replace(b"softmax", b"softmix"): ["line 4", "nearest is 'softmax'"],
            b"model m\ninput x [99999999999999999999]": ["line 2"],
            b"model m\ninput x [9007199254740992,9007199254740992]": ["line 2", "elements"],
            b"model m\nrepeat i = 9007199254740992\nend": ["line 2"],
            b"model m\n" + b"repeat i = 2\n" * 5000: ["line 10"],
            b"model m\ninput x [" + b"(" * 100000 + b"]": ["line 2"],
            b"\x00\xff\x1b[31m": ["line 1"],
        }
        for text, words in wrong.items():
            with self.subTest(text[:40]):
                self.write("bad.txt", text)
                self.refuse(2, words, "model", "bad.txt")

    def test_wrong_arguments_give_one_line(self):
        self.refuse(2, ["NAME is missing", "block"], "model")
        self.refuse(2, ["unknown model 'blok'", "nearest is 'block'"], "model", "blok")
        self.refuse(2, ["none.txt"], "model", "none.txt")
        self.refuse(2, ["--size", "nearest is 'tiny'"], "model", "block", "--size", "tine")
        self.refuse(2, ["--set", "nearest is 'batch'"], "model", "block", "--set", "batc=3")
        self.refuse(2, ["--set batch=x"], "model", "block", "--set", "batch=x")
        self.refuse(2, ["--what-if"], "model", "block", "--what-if", "gemm")
        self.refuse(2, ["step or kernel 'gem'"], "model", "block", "--what-if", "gem=scalar")
        self.refuse(2, ["nearest is 'scalar'"], "model", "block", "--what-if", "gemm=scalr")
        self.refuse(2, ["--levels"], "model", "block", "--levels", "--what-if", "gemm=scalar")
        self.refuse(2, ["--csv"], "model", "block", "--csv", "no/such/folder.csv")
        self.write("other.json", b"{}")
        status, _, err = self.call("model", "block", "--size", "tiny", "--ceilings", "other.json")
        self.assertEqual((status, "other.json" in err), (2, True), err)
        self.refuse(3, ["memory"], "model", "block", "--set",
                    "batch=1,inputs=500000,hidden=500000")


class AllModels(CommandLine):
    """scripts/models.sh's work at its quickest."""

    def test_one_command_makes_the_table_of_all_models(self):
        script = Path(__file__).resolve().parent.parent / "scripts" / "models.py"
        done = subprocess.run(
            [sys.executable, script, "--quick", "--threads", "1", "--models", "block", "--out",
             self.path("out"), "--rooflane", self.rooflane],
            capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        page = self.read("out/README.md").decode()
        self.assertRegex(page, r"\| block small \| run \| [\d.]+ (µs|ns) \| \d+ \| gemm ")
        self.assertRegex(page, r"Of \d+ swaps the measured gain lies within ± 3 points")
        proofs = self.rows("out/swaps.csv")
        for proof in proofs:
            self.assertIn(f"| {proof['swap']} |", page)
        # Bars of four blocks, each cut by three kernels.
        self.assertEqual(self.read("out/models.svg").count(b"<rect"), 4 * 3)
        self.assertTrue(self.rows("out/rows.csv"))

    def rows(self, name: str) -> list[dict[str, str]]:
        return list(csv.DictReader(self.read(name).decode().splitlines()))


class Whole(CommandLine):
    """Each model by NumPy in double precision, from the weights that `--save` wrote."""

    def test_every_model_computes_what_numpy_does(self):
        script = Path(__file__).resolve().parent.parent / "scripts" / "check_models.py"
        done = subprocess.run([sys.executable, script, "--rooflane", self.rooflane],
                              capture_output=True, text=True, check=False)
        if done.returncode == 3:
            self.skipTest(skip.reason(done.stderr.splitlines()[-1]))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        checked = {line.split()[1] for line in done.stdout.splitlines()}
        self.assertEqual(checked, set(MODELS), done.stdout)


if __name__ == "__main__":
    main()

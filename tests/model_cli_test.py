#!/usr/bin/env python3
"""`rooflane model` as a user types it: every model of the library at its smallest size, swaps,
levels, files, and arguments and model files that are wrong. model_cli_test.py ROOFLANE
ROOFLANE_WITH_FAKES.
"""
import csv
import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import skip
import tiny_llama as tiny
from command_line import CommandLine, main, read_npy

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

    def test_phases_say_bytes_packing_and_waiting_of_each_step(self):
        self.assertNotIn("waiting", self.succeed("model", "llama", *QUICK))
        out = self.succeed("model", "llama", *QUICK, "--phases")
        tables = out.split("bytes, and what threads do\n")[1:]
        self.assertEqual(len(tables), 2)  # phases
        for table in tables:
            rows = {line.split()[0]: line.split()[1:] for line in
                    table.split("\n\n")[0].splitlines()}
            self.assertEqual(rows["step"], "MB GB/s % of read packing % waiting %".split())
            for step in ("qkv", "attention", "ffn_down"):
                moved, rate, read, packing, waiting = (float(cell) for cell in rows[step])
                self.assertGreaterEqual(min(rate, read, packing, waiting), 0)
                if step != "attention":  # its bytes are few: a slow machine's rate rounds to 0
                    self.assertGreater(rate, 0)
                    self.assertGreater(read, 0)
                self.assertLessEqual(packing + waiting, 100.1)
                self.assertLess(moved, 0.1)

    def test_math_of_short_numbers_is_of_products_by_such_weights(self):
        words = ["model", "block", *QUICK, "--math", "bf16"]
        self.refuse(2, ["--weight-type sets it"], *words)
        words += ["--weight-type", "bf16"]
        if self.serves("bf16", "bf16"):
            self.succeed(*words)
        else:
            self.refuse(3, ["hwy: math bf16", "this CPU lacks"], *words)

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
        out = self.succeed("model", "block", *QUICK, "--set", "batch=8", "--levels", "--csv",
                           "rows.csv")
        for level in ("scalar", "blas", "hwy"):
            self.assertRegex(out, rf"(?m)^{level} +\d of 3 ")
        self.assertRegex(out, r"growth of run with batch: 1: .*8: .*slope on log-log axes -?\d")
        self.assertRegex(out, r"buffers: [\d.]+ KiB in one arena")
        memory = self.rows("rows.csv.levels.csv")
        levels = [row["level"] for row in memory[::5]]
        self.assertEqual(levels[:3], ["scalar", "blas", "hwy"])
        # Nothing here is fused; what more there is depends on the machine's units.
        self.assertLessEqual(set(levels[3:]), {"bf16", "int8"})
        for level in (memory[i:i + 5] for i in range(0, len(memory), 5)):
            self.assertEqual([row["stage"] for row in level],
                             ["begin", "tensors", "plans", "unpacked-freed", "run"])
            peaks = [int(row["peak_bytes"]) for row in level]
            self.assertEqual(peaks, sorted(peaks))
            self.assertEqual([row["ns"] for row in level],
                             sorted((row["ns"] for row in level), key=int))
            self.assertLessEqual(max(int(row["resident_bytes"]) for row in level), peaks[-1])

    def test_fused_steps_are_a_model_of_their_own(self):
        out = self.succeed("model", "transformer-gelu", "--size", "tiny", "--fuse", "--dry-run")
        self.assertRegex(out, r"up\+gelu +1 +gemm:.*epilogue=bias\+gelu_tanh")
        out = self.succeed("model", "transformer-gelu", *QUICK, "--fuse", "--what-if",
                           "gemm=scalar,up+gelu=scalar", "--csv", "rows.csv")
        self.assertRegex(out, r"(?m)^whole: PASSED ")
        self.assertIn("run/up+gelu", {row["step"] for row in self.rows("rows.csv")})
        self.assertIn("up+gelu=scalar",
                      {proof["swap"] for proof in self.rows("rows.csv.swaps.csv")})

    def test_levels_go_on_with_fused_steps_and_short_numbers(self):
        out = self.succeed("model", "transformer-gelu", *QUICK, "--levels", "--csv", "rows.csv")
        self.assertRegex(out, r"(?m)^fused: verified: ")
        self.assertRegex(out, r"(?m)^fused +7 of 7 ")
        self.assertRegex(out, r"(?m)^buffers of fused: ")
        self.assertNotIn("FAILED", out)

    def test_the_memory_of_a_level_holds_weights_twice_while_they_are_packed(self):
        # 16 MiB of weights, which plans pack before the given ones are freed.
        self.succeed("model", "block", "--set", "batch=2,inputs=2048,hidden=2048", "--threads", "1",
                     "--max-time", "0.05", "--ceilings", "ceilings.json", "--levels", "--csv",
                     "rows.csv")
        held = {(row["level"], row["stage"]): int(row["resident_bytes"]) / 2**20
                for row in self.rows("rows.csv.levels.csv")}
        def grown(level: str, stage: str, before: str) -> float:
            return held[level, stage] - held[level, before]

        # A sanitizer holds more than what is asked for.
        for level in ("scalar", "hwy"):
            self.assertGreater(grown(level, "tensors", "begin"), 12)
            self.assertGreater(grown(level, "plans", "tensors"), 12)
            self.assertLess(grown(level, "unpacked-freed", "plans"), -12)

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


class Weights(CommandLine):
    """`--weights FILE.gguf`: the tensors of a llama of two layers."""

    def setUp(self) -> None:
        super().setUp()
        self.weights = tiny.tensors()
        self.write("tiny.gguf", tiny.file_of(tiny.metadata(), self.weights))

    @staticmethod
    def words(**others: int) -> list[str]:
        """The model at the file's sizes, or at others."""
        sizes = {"layers": tiny.LAYERS, "width": tiny.WIDTH, "heads": tiny.HEADS,
                 "kv_heads": tiny.KV_HEADS, "hidden": tiny.HIDDEN, "vocab": tiny.VOCABULARY,
                 "prompt": 5, "capacity": 6} | others
        return ["model", "llama", "--set", ",".join(f"{name}={n}" for name, n in sizes.items()),
                "--weights", "tiny.gguf", "--threads", "1"]

    def rows_of(self, *names: str) -> list[float]:
        return [value for name in names for row in self.weights[f"{name}.weight"].rows
                for value in row]

    def saved(self, name: str) -> list[float]:
        _, _, values = read_npy(self.path(f"saved/{name}.npy"))
        return list(values)

    def test_the_file_s_tensors_are_what_is_computed_with(self):
        out = self.succeed(*self.words(), "--save", "saved")
        self.assertRegex(out, r"(?m)^whole: PASSED decode/logits ")
        for weight, names in {
                "token_embd": ["token_embd"], "output": ["token_embd"],  # tied in this file
                "blk.1.attn_norm": ["blk.1.attn_norm"], "blk.0.ffn_down": ["blk.0.ffn_down"],
                "blk.1.attn_qkv": ["blk.1.attn_q", "blk.1.attn_k", "blk.1.attn_v"],
                "blk.0.ffn_gate_up": ["blk.0.ffn_gate", "blk.0.ffn_up"]}.items():
            with self.subTest(weight):
                # Rounded to float32 once; the values here are exact.
                self.assertEqual(self.saved(weight), [
                    struct.unpack("<f", struct.pack("<f", value))[0]
                    for value in self.rows_of(*names)])

    def test_tensors_by_their_whole_names_and_what_is_left_unread(self):
        self.write("mine.txt", b"model mine\ninput ids [3] below=265\noutput y [3,64]\n"
                   b"weight token_embd.weight [265,64]\n"
                   b"step s embed table=token_embd.weight ids=ids y=y\n")
        status, out, err = self.call("model", "mine.txt", "--weights", "tiny.gguf", "--dry-run")
        self.assertEqual(status, 0, err)
        self.assertIn("embed:", out)
        self.assertIn(f"{len(self.weights) - 1} of the {len(self.weights)} tensors of 'tiny.gguf' "
                      "are not used: output_norm.weight, ...", err)

    def test_missing_and_wrong_tensors_are_named_in_one_line(self):
        self.refuse(2, ["--weights: weight blk.2.attn_norm [64]: 'tiny.gguf' has no tensor "
                        "'blk.2.attn_norm.weight'; 5 more weights"], *self.words(layers=3))
        self.refuse(2, ["weight blk.0.ffn_gate_up [80,64]: 'tiny.gguf' has tensor "
                        "'blk.0.ffn_gate.weight' of [96,64] instead of [40,64]"],
                    *self.words(hidden=40))
        self.refuse(2, ["--weights", "none.gguf"], "model", "llama", "--weights", "none.gguf")
        self.write("short.gguf", self.read("tiny.gguf")[:-100])
        self.refuse(2, ["--weights: 'short.gguf': truncated"], "model", "llama", "--weights",
                    "short.gguf")
        self.write("ids.txt", b"model mine\nweight token_embd [265] below=265\noutput y [265,64]\n"
                   b"weight table [265,64]\nstep s embed table=table ids=token_embd y=y\n")
        self.refuse(2, ["weight token_embd [265]: it holds integers"], "model", "ids.txt",
                    "--weights", "tiny.gguf")


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
        self.assertRegex(page, r"\| block small \| run \| [\d.]+ (s|ms|µs|ns) \| \d+ \| "
                                r"(gemm|layernorm|softmax) ")
        self.assertRegex(page, r"\| block small \| run \| [\d.]+ \| \d+ \| \d+ \| \d+ \| "
                                r"[1-9]\d* \| (compute|memory), \d+ \|")
        self.assertRegex(page, r"For \d+ of \d+ swaps \(\d+ %\) the measured gain is within "
                               r"± 3 points")
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

#!/usr/bin/env python3
"""The tables of speed_vs_peers.sh and opencl_vs_peers.sh: targets_test.py ROOFLANE SOURCE_ROOT.

Made-up rows with known ratios must give known figures and verdicts; the shipped problems and goals
must be whole. Measures nothing, needs no network.
"""
from __future__ import annotations

import csv
import json
import math
import random
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import skip

ROOFLANE, ROOT = "", Path()
COLUMNS = ["schema_version", "cpu", "kernel", "variant", "tuning", "library", "shape", "preset",
           "threads", "status", "reason", "p50_ns", "roof_pct", "roof_pct_lo", "roof_pct_hi",
           "device", "math", "flops", "bytes", "bound"]
ROUNDS, LAUNCHES, OURS_NS = 5, 3, 1000.0
SEED = 20261121
AMD, INTEL = "AMD EPYC", "Intel Xeon Processor"


class Run:
    """A CSV with its samples, filled variant by variant. Rows of a device have no threads."""

    def __init__(self, path: Path, cpu: str = AMD, device: str = ""):
        self.path, self.cpu, self.device, self.rows, self.samples = path, cpu, device, [], []

    def add(self, variant: str, factor: float, *, preset: str = "gemm-small",
            shape: str = "m=16,n=16,k=16", threads: int = 1, status: str = "PASSED",
            library: str | None = None, roof: float | None = None, noise: float = 0,
            math_used: str = "fp32", bound: str = "compute") -> None:
        """A row that takes `factor` times what ours takes. Rounds differ by a factor that all
        variants share, besides `noise` of their own."""
        timed = status == "PASSED"
        cells = {"schema_version": "1", "cpu": self.cpu, "kernel": preset.split("-")[0],
                 "variant": variant,
                 "library": f"Lib{variant} 1" if library is None else library, "shape": shape,
                 "preset": preset, "threads": "" if self.device else str(threads),
                 "status": status, "device": self.device, "math": math_used, "bound": bound,
                 "flops": "5e7", "bytes": "2e6",
                 "reason": "" if timed else "wrong result",
                 "p50_ns": str(OURS_NS * factor) if timed else ""}
        if roof is not None:
            cells |= {"roof_pct": str(roof), "roof_pct_lo": str(roof * 0.999),
                      "roof_pct_hi": str(roof * 1.001)}
        chance = random.Random(f"{SEED} {variant} {shape} {threads}")
        for launch in range(1, LAUNCHES + 1 if timed else 1):
            for slot in range(ROUNDS):
                machine = 1 + 0.3 * slot + launch  # the same for all slots of a round
                own = math.exp(chance.gauss(0, noise)) if noise else 1
                self.samples.append([len(self.rows), launch, slot, OURS_NS * factor * machine * own,
                                     500 + slot, "", "", "", "", ""])
        self.rows.append([cells.get(column, "") for column in COLUMNS])

    def ours(self, roof: float | None = 90, **more) -> None:
        self.add("hwy", 1, library="", roof=roof, **more)

    def write(self) -> str:
        names = "row,launch,round,ns,probe_ns,h2d_ns,kernel_ns,d2h_ns,e2e_ns,disturbance"
        for path, header, lines in ((self.path, COLUMNS, self.rows),
                                    (f"{self.path}.samples.csv", names.split(","), self.samples)):
            with open(path, "w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([header, *lines])
        return str(self.path)


def summarise(*arguments: str, script: str = "speed_vs_peers") -> subprocess.CompletedProcess:
    """Runs a script with the program under test, or the one that is named."""
    program = [] if "--rooflane" in arguments else ["--rooflane", ROOFLANE]
    return subprocess.run([str(ROOT / f"scripts/{script}.sh"), *program, *arguments], text=True,
                          capture_output=True, check=False)


def lines_of(text: str) -> list[dict[str, str]]:
    """The lines of a Markdown table as heading -> cell."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in text.splitlines() if line.startswith("|")]
    return [dict(zip(rows[0], row)) for row in rows[2:]]


class Table(unittest.TestCase):
    """Known ratios in, the table out."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_of(self, cpu: str = AMD) -> Run:
        return Run(self.folder / f"run{len(list(self.folder.iterdir()))}.csv", cpu)

    def lines(self, run: Run, *more: str) -> list[dict[str, str]]:
        """The lines of the table as heading -> cell."""
        done = summarise("--csv", run.write(), *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.text = done.stdout
        return lines_of(done.stdout)

    def line(self, run: Run, *more: str) -> dict[str, str]:
        lines = self.lines(run, *more)
        self.assertEqual(len(lines), 1)
        return lines[0]

    def test_ratios_are_of_the_best_peer_of_each_problem_and_geometric_over_the_class(self):
        run = self.run_of()
        for shape, x, y in (("m=16,n=16,k=16", 2.0, 3.0), ("m=32,n=32,k=32", 9.0, 4.5)):
            run.ours(shape=shape)
            run.add("x", x, shape=shape)
            run.add("y", y, shape=shape)
        line = self.line(run)
        self.assert_ratio(line, "3.00")
        self.assertEqual(line["worst case"], "2.00 `m=16,n=16,k=16` (x)")
        self.assertEqual((line["class"], line["threads"], line["problems"]),
                         ("gemm-small", "1", "2"))
        self.assertIn("x (Libx 1), best of 1", self.text)
        self.assertIn("y (Liby 1), best of 1", self.text)

    def test_ratios_are_taken_within_rounds(self):
        run = self.run_of()
        run.ours()
        run.add("x", 2.0)
        run.rows[1][COLUMNS.index("p50_ns")] = "9000"  # as of other rounds
        self.assert_ratio(self.line(run), "2.00")

    def test_the_interval_holds_the_truth_and_grows_with_the_noise(self):
        widths = []
        for noise in (0.01, 0.1):
            run = self.run_of()
            for size in range(8):
                run.ours(shape=f"m={size}", noise=noise)
                run.add("x", 1.5, shape=f"m={size}", noise=noise)
            text = self.line(run)["ratio to the best peer [95 %]"]
            low, high = map(float, text[text.index("[") + 1:-1].split(","))
            self.assertTrue(low <= 1.5 <= high, f"{text}; seed {SEED}")
            widths.append(high - low)
        self.assertGreater(widths[1], 3 * widths[0])

    def test_a_peer_that_failed_is_never_the_best_and_is_named(self):
        run = self.run_of()
        run.ours()
        run.add("x", 2.0)
        run.add("cheat", 0.1, status="FAILED")
        self.assertEqual(self.line(run)["worst case"], "2.00 `m=16,n=16,k=16` (x)")
        self.assertIn("- cheat: 1, first gemm:m=16,n=16,k=16 FAILED: wrong result", self.text)

    def test_neither_our_other_variants_nor_another_build_is_a_peer(self):
        run = self.run_of()
        run.ours()
        run.add("scalar", 0.1, library="")
        run.add("onednn@old", 0.1)
        run.add("x", 2.0)
        self.assertEqual(self.line(run)["worst case"], "2.00 `m=16,n=16,k=16` (x)")

    def test_peers_count_at_equal_threads_and_prepack_only(self):
        run = self.run_of()
        run.ours(threads=1)
        run.ours(threads=2)
        run.ours(threads=2, shape="m=16,n=16,k=16,prepack=1")
        run.add("x", 0.5, threads=1)
        run.add("x", 3.0, threads=2)
        one, two = self.lines(run)
        self.assert_ratio(one, "0.50")
        self.assert_ratio(two, "3.00")

    def assert_ratio(self, line, ratio: str) -> None:
        """The figure, in an interval as wide as the usual difference of repetitions."""
        value, low, high = re.match(r"(\S+) \[(\S+), (\S+)\]$",
                                    line["ratio to the best peer [95 %]"]).groups()
        self.assertEqual(value, ratio)
        self.assertLess(0.96 * float(value), float(low))
        self.assertLessEqual(float(low), float(value))
        self.assertLessEqual(float(value), float(high))
        self.assertLess(float(high), 1.04 * float(value))

    def test_met_changes_at_the_threshold_of_the_mean(self):
        for factor, met in ((0.97, "no"), (0.995, "no?"), (1.0, "must?"), (1.05, "must"),
                            (1.095, "must"), (1.1, "aim?"), (1.15, "aim")):
            run = self.run_of()
            run.ours(preset="gemm-awkward")
            # Upwards by a billionth: 1.0 must not fall below 1.00 by rounding.
            run.add("x", factor * (1 + 1e-9), preset="gemm-awkward")
            self.assertEqual(self.line(run)["met"], met, factor)

    def test_met_changes_at_the_threshold_of_the_worst_problem(self):
        for factor, met in ((0.97, "no"), (0.995, "no?"), (1.0, "must?"), (1.05, "must"),
                            (1.15, "aim?"), (1.25, "aim")):
            run = self.run_of()
            for shape, of_shape in (("m=1", factor * (1 + 1e-9)), ("m=2", 9.0)):
                run.ours(shape=shape)
                run.add("x", of_shape, shape=shape)
            self.assertEqual(self.line(run)["met"], met, factor)

    def test_met_changes_at_the_threshold_of_the_roof(self):
        for roof, met in ((84.8, "no"), (85.2, "must"), (95.2, "aim")):
            run = self.run_of()
            run.ours(roof=roof, preset="gemm-skinny")
            run.add("x", 0.5, preset="gemm-skinny")
            line = self.line(run)
            self.assertEqual(line["met"], met)
            self.assertEqual(line["% of roof (least)"], f"{roof} ({roof})")

    def test_a_goal_of_several_conditions_wants_all(self):
        for roof, factor, met in ((84.0, 1.08, "must"), (84.0, 1.02, "no"), (82.0, 1.08, "no")):
            run = self.run_of(INTEL)
            run.ours(roof=roof, preset="gemm-large")
            run.add("x", factor, preset="gemm-large")
            self.assertEqual(self.line(run)["met"], met, (roof, factor))

    def test_a_goal_against_a_named_peer_knows_no_other(self):
        for peers, met in ((("torch",), "must"), (("x",), "unknown: no figure for torch"),
                           (("torch", "x"), "must")):
            run = self.run_of()
            run.ours(preset="softmax-in-cache")
            for peer in peers:
                run.add(peer, 2.2 if peer == "torch" else 1.0, preset="softmax-in-cache")
            self.assertEqual(self.line(run)["met"], met)

    def test_an_interval_that_holds_the_bound_is_marked(self):
        run = self.run_of()
        run.ours(preset="gemm-batch", noise=0.2)
        run.add("x", 1.001, preset="gemm-batch", noise=0.2)
        self.assertIn(self.line(run)["met"], ("no?", "must?", "aim?"))

    def test_goals_differ_by_machine_and_threads(self):
        for cpu, threads, must in ((AMD, 1, "each 96 % of roof"), (AMD, 2, "each 1.00 × best"),
                                   (INTEL, 2, "each 1.05 × best"), (INTEL, 16, "each 0.97 × best")):
            run = self.run_of(cpu)
            run.ours(preset="gemm-large", threads=threads)
            run.add("x", 1.0, preset="gemm-large", threads=threads)
            self.assertTrue(self.line(run)["must"].startswith(must), (cpu, threads, must))
        run = self.run_of()
        run.ours(preset="gemm-large")
        run.add("x", 1.0, preset="gemm-large")
        self.assertIn("83 % of roof", self.line(run, "--machine", "sapphire-rapids")["must"])

    def test_a_problem_that_ours_fails_fails_the_class(self):
        run = self.run_of()
        run.ours(shape="m=1")
        run.add("x", 9.0, shape="m=1")
        run.add("hwy", 1, library="", shape="m=2", status="FAILED")
        run.add("x", 9.0, shape="m=2")
        self.assertEqual(self.line(run)["met"], "no: gemm:m=2 FAILED: wrong result")

    def test_missing_peers_are_named(self):
        run = self.run_of()
        run.ours()
        run.add("onednn", 1.2)
        run.add("torch", 1, status="UNSUPPORTED", library="")
        self.line(run)
        missing = self.text.split("Missing:")[1]
        for name in ("blis", "blas-mkl", "torch", "numpy", "onnxruntime"):
            self.assertIn(f"- {name}: no row of it at these numbers of threads\n", missing)
        self.assertNotIn("onednn", missing)

    def test_without_any_peer_the_roof_is_shown_all_the_same(self):
        run = self.run_of()
        run.ours(roof=91, preset="gemm-skinny")
        line = self.line(run)
        self.assertEqual((line["worst case"], line["met"]), ("no peer passed", "must"))

    def test_out_writes_the_table_and_every_problem(self):
        run = self.run_of()
        run.ours()
        run.add("x", 2.0)
        self.line(run, "--out", str(self.folder / "new" / "table"))
        text = (self.folder / "new" / "table.md").read_text(encoding="utf-8")
        self.assertTrue(text.startswith(self.text))
        self.assertRegex(text, r"\| gemm-small \| `gemm:m=16,n=16,k=16` \| 1 \| 1 \| x \| "
                               r"2\.00 \[1\.9\d, 2\.0\d\] \| 90\.0 \|")

    def test_of_several_variants_of_ours_a_class_counts_the_best(self):
        run = self.run_of()
        for shape in ("m=1", "m=2"):
            run.ours(preset="gemm-bf16", shape=shape, math_used="bf16", roof=40)
            run.add("avx512", 0.5, library="", preset="gemm-bf16", shape=shape, math_used="bf16",
                    roof=80)
            run.add("x", 0.6, preset="gemm-bf16", shape=shape, math_used="bf16")
        run.add("amx", 0.1, library="", preset="gemm-bf16", shape="m=1", math_used="bf16", roof=99)
        line = self.line(run, "--low-precision")
        self.assertEqual((line["class"], line["problems"]), ("gemm-bf16 (avx512)", "2"))
        self.assert_ratio(line, "1.20")
        self.assertEqual(line["met"], "no")  # of the roof

    def test_classes_of_another_math_or_cold_are_runs_of_their_own_with_all_peers(self):
        calls = self.folder / "calls"
        program = self.folder / "stand-in"
        listed = json.dumps({"kernels": [{"variants": [
            {"name": name, "available": True} for name in ("hwy", "avx512", "onednn", "torch")]}]})
        program.write_text(f"""#!/bin/sh
echo "$@" >> {calls}
case "$*" in
  list*) echo '{listed}' ;;
  roofline*) exec {ROOFLANE} "$@" ;;
  *) shift; shift; echo 'schema_version,kernel,preset,shape,variant,status' > "$1" ;;
esac
""", encoding="utf-8")
        program.chmod(0o755)
        done = summarise("--rooflane", str(program), "--low-precision", "--quick", "--random", "2",
                         "--classes", "gemm-bf16,gemm-weights4,gemm-fused,gemm-fused-random,"
                         "softmax-bf16")
        self.assertIn("no row of a class", done.stderr)
        runs = [line for line in calls.read_text(encoding="utf-8").splitlines()
                if line.startswith("bench")]
        self.assertEqual(len(runs), 4)
        for run in runs[:3]:
            self.assertIn("-v hwy,avx512,onednn --peers torch", run)
        self.assertIn("--preset softmax-bf16 -v hwy,onednn --peers torch", runs[3])
        for run, words in zip(runs, ("--preset gemm-fused,gemm-fused-random ",
                                     "--preset gemm-bf16 -v hwy,avx512,onednn --peers torch "
                                     "--math bf16 ", "--cache cold ")):
            self.assertIn(words, run)

    def test_a_peer_that_is_inaccurate_counts_and_is_named(self):
        run = self.run_of()
        run.ours()
        run.add("x", 2.0)
        run.rows[1][COLUMNS.index("status")] = "INACCURATE"
        run.rows[1][COLUMNS.index("reason")] = "computes in int8-block"
        self.assert_ratio(self.line(run), "2.00")
        self.assertIn("still counted as peers:\n\n- x: 1, first gemm:m=16,n=16,k=16: "
                      "computes in int8-block", self.text)

    def test_classes_choose_lines(self):
        run = self.run_of()
        for preset in ("gemm-small", "softmax-odd", "softmax-long"):
            run.ours(preset=preset, shape=f"of={preset}")
        names = [line["class"] for line in self.lines(run, "--classes", "softmax")]
        self.assertEqual(names, ["softmax-odd", "softmax-long"])
        names = [line["class"] for line in self.lines(run, "--classes", "gemm-small,softmax-odd")]
        self.assertEqual(names, ["gemm-small", "softmax-odd"])

    def test_problems_that_nobody_listed_are_a_class_without_goals(self):
        run = self.run_of()
        run.ours(preset="gemm-random")
        run.add("x", 2.0, preset="gemm-random")
        line, = self.lines(run)
        self.assertEqual((line["class"], line["met"]), ("gemm-random", "-"))

    def test_listed_problems_stand_beside_random_ones_where_both_were_measured(self):
        run = self.run_of()
        for preset, ratios in (("gemm-bf16", (2.0, 4.0)), ("gemm-bf16-random", (1.0, 9.0))):
            for number, ratio in enumerate(ratios, 1):
                shape = f"m={number},n={len(preset)},k=1"
                run.ours(preset=preset, shape=shape, math_used="bf16")
                run.add("x", ratio, preset=preset, shape=shape, math_used="bf16")
        *_, line = self.lines(run, "--low-precision")
        cells = [cell.split()[0] for cell in line.values()]
        self.assertEqual(cells[:6], ["gemm-bf16", "1", "2.83", "2.00", "3.00", "1.00"])

    def test_wrong_input_is_named_and_refused(self):
        ours, other = self.run_of(), Run(self.folder / "other.csv", INTEL)
        ours.ours()
        other.ours()
        one, two = ours.write(), other.write()
        no_rows = self.folder / "none.csv"
        no_rows.write_text("a,b\n1,2\n", encoding="utf-8")
        for arguments, said in (
                (["--csv", one, two], "several machines"),
                (["--csv", str(no_rows)], "none.csv"),
                (["--csv", str(self.folder / "absent.csv")], "absent.csv"),
                (["--csv", one, "--classes", "gemm-smell"], "gemm-small"),
                (["--csv", one, "--classes", "softmax"], "no row of a class"),
                (["--csv", one, "--quick"], "--csv measures nothing"),
                (["--csv", one, "--resume"], "--resume needs --out"),
                (["--csv", one, "--random", "3"], "--csv measures nothing"),
                (["--random", "-1"], "at least 1")):
            done = summarise(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(said, done.stderr)
            self.assertEqual(done.stdout, "")


class Device(unittest.TestCase):
    """The table of the OpenCL kernels: problem by problem, rows without threads."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_of(self, name: str = "gpu", device: str = "NVIDIA H200") -> Run:
        return Run(self.folder / f"{name}.csv", device=device)

    @staticmethod
    def ours(run: Run, **more) -> None:
        run.add("opencl", 1, library="", **{"preset": "gemm-square", "roof": 80, **more})

    @staticmethod
    def peers(run: Run, cublas: float, clblast: float, **more) -> None:
        run.add("torch-cuda", cublas, library="cuBLAS 1", **{"preset": "gemm-square", **more})
        run.add("clblast", clblast, library="CLBlast 1", **{"preset": "gemm-square", **more})

    def table(self, *runs: Run) -> list[dict[str, str]]:
        done = summarise("--csv", *[run.write() for run in runs], script="opencl_vs_peers")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.text = done.stdout
        return lines_of(done.stdout)

    def test_every_problem_is_held_against_its_class_s_goal_by_itself(self):
        run = self.run_of()
        for shape, cublas, clblast in (("m=1", 0.89, 2), ("m=2", 0.91, 2), ("m=3", 0.91, 0.95),
                                       ("m=4", 1.01, 1.5)):
            self.ours(run, shape=shape)
            self.peers(run, cublas, clblast, shape=shape)
        lines = self.table(run)
        self.assertEqual([line["met"] for line in lines], ["no", "must", "no", "aim?"])
        self.assertRegex(lines[2]["ratio [95 %]"], r"0\.91 \[0\.(89|90), 0\.9[23]\]")
        self.assertIn("torch-cuda 0.89 µs, 56.18 TFLOP/s", lines[0]["best peer"])
        self.assertEqual(lines[0]["`opencl`"], "1 µs, 50 TFLOP/s")
        self.assertEqual(lines[0]["must"], "0.90 × torch-cuda (0.89), 1.00 × clblast (2.00)")
        self.assertIn("4 problems: 1 reach the aim, 1 more reach the must, 2 reach neither. "
                      "Device: NVIDIA H200; goals of H200.", self.text)

    def test_what_memory_bounds_is_told_in_bytes_and_held_against_the_ceiling(self):
        for roof, met in ((87, "no"), (89, "must"), (96, "aim")):
            run = self.run_of()
            self.ours(run, preset="softmax-memory", shape="rows=1", roof=roof, bound="memory")
            line, = self.table(run)
            self.assertEqual((line["`opencl`"], line["% of ceiling"], line["met"]),
                             ("1 µs, 2000 GB/s", f"{roof:.1f}", met))

    def test_other_maths_are_compared_with_strict_peers_wherever_those_were_measured(self):
        strict, split = self.run_of("strict"), self.run_of("split")
        self.ours(strict, shape="m=1")
        self.peers(strict, 1.5, 9, shape="m=1")
        # The benchmark has no other class for this shape: our fp32 row does not belong to this one.
        self.ours(strict, shape="m=2", preset="gemm-square-3xtf32")
        self.peers(strict, 2.5, 9, shape="m=2", preset="gemm-square-3xtf32")
        for shape in ("m=1", "m=2"):
            split.add("opencl", 0.5, library="", shape=shape, preset="gemm-square-3xtf32", roof=70,
                      math_used="3xtf32")
        lines = self.table(strict, split)
        found = {(line["shape"], line["math"]): line for line in lines}
        self.assertEqual(len(lines), 3)
        self.assertEqual(found["m=1", "fp32"]["ratio [95 %]"].split()[0], "1.50")
        for shape, ratio in (("m=1", 3.0), ("m=2", 5.0)):
            line = found[shape, "3xtf32"]
            self.assertAlmostEqual(float(line["ratio [95 %]"].split()[0]), ratio, delta=0.01)
            self.assertEqual(line["must"], f"1.30 × torch-cuda ({ratio:.2f})")
            self.assertTrue(line["met"].startswith("aim"))

    def test_of_a_short_format_peers_of_the_same_math_are_compared(self):
        run = self.run_of()
        for math_used, factor in (("fp32", 9), ("f16", 0.9)):
            self.ours(run, preset="gemm-f16", math_used=math_used)
            self.peers(run, factor, 99, preset="gemm-f16", math_used=math_used)
        line, = self.table(run)
        self.assertEqual((line["math"], line["ratio [95 %]"].split()[0], line["met"].rstrip("?")),
                         ("f16", "0.90", "must"))

    def test_drawn_problems_of_a_class_have_its_goal(self):
        run = self.run_of()
        self.ours(run, preset="gemm-weights-random", shape="m=1", roof=81, bound="memory")
        self.ours(run, preset="gemm-random", shape="m=2")
        self.assertEqual([line["met"] for line in self.table(run)], ["must", "-"])

    def test_what_ours_refuses_or_peers_lack_is_told(self):
        run = self.run_of()
        run.add("opencl", 1, library="", preset="gemm-square", status="UNSUPPORTED")
        self.peers(run, 2, 3)
        self.assertEqual(self.table(run)[0]["met"], "no: UNSUPPORTED: wrong result")
        run = self.run_of()
        self.ours(run)
        line, = self.table(run)
        self.assertEqual((line["best peer"], line["met"]),
                         ("none passed", "unknown: no figure for torch-cuda, clblast"))
        self.assertIn("- torch-cuda: ", self.text)

    def test_rows_of_two_devices_are_refused(self):
        runs = [self.run_of("one"), self.run_of("two", "Another GPU")]
        for run in runs:
            self.ours(run)
        done = summarise("--csv", *[run.write() for run in runs], script="opencl_vs_peers")
        self.assertEqual(done.returncode, 2)
        self.assertIn("several machines", done.stderr)

    def stand_in(self, devices: list[tuple[str, str]], cases: str = "") -> str:
        """A program that has these devices (kind, name), and does in other `cases` of the shell as
        told."""
        listed = [{"index": index, "kind": kind, "name": name}
                  for index, (kind, name) in enumerate(devices)]
        path = self.folder / "stand-in"
        path.write_text(f"""#!/bin/sh
echo "$@" >> {self.folder}/calls
case "$*" in
  doctor*) echo '{json.dumps({"device_backends": [{"devices": listed}]})}' ;;
  {cases}
esac
""", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def test_without_a_gpu_it_says_so_and_ends_with_3(self):
        for devices, told in (([("CPU", "pthread-AMD EPYC")], "devices: 0 CPU pthread-AMD EPYC)"),
                              ([], "none")):
            done = summarise("--rooflane", self.stand_in(devices), script="opencl_vs_peers")
            self.assertEqual((done.returncode, done.stdout), (3, ""))
            self.assertIn("OpenCL sees no GPU on this machine", done.stderr)
            self.assertIn(told, done.stderr)

    def test_the_first_gpu_is_measured_by_its_own_clock_with_the_peers_of_the_same_rounds(self):
        def listing(*names: str) -> str:
            variants = [{"name": name, "available": True} for name in names]
            return json.dumps({"kernels": [{"variants": variants}]})

        # Takes down how it is called, knows two peers, and writes no row.
        program = self.stand_in([("CPU", "some"), ("GPU", "card")], f"""
  list*--preset*) echo '{{"problems": []}}' ;;
  list*--peers*) echo '{listing("torch-cuda")}' ;;
  list*) echo '{listing("opencl", "clblast")}' ;;
  roofline*) exec {ROOFLANE} "$@" ;;
  *--math*) exit 2 ;;
  *) shift; shift; echo 'schema_version,kernel,preset,shape,variant,status' > "$1" ;;""")
        done = summarise("--rooflane", program, "--quick", "--random", "1", "--classes",
                         "gemm-square,gemm-square-3xtf32,gemm-f16,gemm-f16-random,softmax-memory",
                         script="opencl_vs_peers")
        self.assertEqual(done.returncode, 2)  # no row
        self.assertIn("no row of a class", done.stderr)
        calls = [line for line in (self.folder / "calls").read_text(encoding="utf-8").splitlines()
                 if line.startswith("bench")]
        strict, split, short, others = calls[-4:]
        for words in ("--preset gemm-square,gemm-square-3xtf32 ", "--launches 1",
                      "-v opencl,clblast", "--peers torch-cuda", "--timer event", "--cl-device 1",
                      "--threads 1"):
            self.assertIn(words, strict)
        self.assertNotIn("--math", strict)
        for words in ("--preset gemm-square-3xtf32", "-v opencl ", "--math 3xtf32",
                      "--timer event", "--cl-device 1"):
            self.assertIn(words, split)
        self.assertNotIn("--peers", split)
        for words in ("--preset gemm-f16,gemm-f16-random ", "-v opencl,clblast",
                      "--peers torch-cuda", "--math f16"):
            self.assertIn(words, short)
        # CLBlast has nothing but GEMM: `bench` would refuse its name.
        for words in ("--preset softmax-memory", "-v opencl ", "--peers torch-cuda"):
            self.assertIn(words, others)


class Data(unittest.TestCase):
    """The shipped problems and goals."""

    def setUp(self) -> None:
        self.data = ROOT / "bench" / "targets"

    def test_every_shape_parses_and_no_problem_stands_in_two_classes(self):
        for file, fewest in (("shapes.txt", 150), ("opencl_shapes.txt", 60),
                             ("lowp_shapes.txt", 40)):
            owner: dict[tuple[str, str], str] = {}
            settings = goals.read_settings(self.data / file)
            with tempfile.TemporaryDirectory() as folder:
                for name, lines in goals.read_shapes(self.data / file, "full").items():
                    Path(folder, name).write_text("\n".join(lines) + "\n", encoding="utf-8")
                    done = subprocess.run(
                        [ROOFLANE, "bench", "--dry-run", "-v", "hwy", "--threads", "1",
                         "--preset", name], cwd=folder, capture_output=True, text=True,
                        check=False)
                    self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")
                    for problem in done.stdout.splitlines():
                        self.assertEqual(problem.split(":")[0], name.split("-")[0])
                        key = problem, settings[name].math
                        self.assertEqual(owner.setdefault(key, name), name, problem)
            self.assertGreater(len(owner), fewest)

    def test_drawn_problems_are_the_seed_s_and_keep_to_their_list(self):
        template = "gemm:m=1~8,n=64~256,k=64~256/32,trans_b=1,b_type=q4_0|q4_1"
        drawn = goals.draw(template, 40, "7 gemm-weights4 0")
        self.assertEqual(drawn, goals.draw(template, 40, "7 gemm-weights4 0"))
        self.assertNotEqual(drawn, goals.draw(template, 40, "8 gemm-weights4 0"))
        self.assertEqual(len(set(drawn)), 40)
        found = [dict(pair.split("=") for pair in shape.split(":")[1].split(","))
                 for shape in drawn]
        for values in found:
            self.assertIn(int(values["m"]), range(1, 9))
            self.assertIn(int(values["k"]), range(64, 257, 32))
        self.assertEqual({values["b_type"] for values in found}, {"q4_0", "q4_1"})
        # Every shipped list gives what the program parses.
        drawn = [shape for file in ("lowp_shapes.txt", "opencl_shapes.txt")
                 for name, lines in goals.read_drawn(self.data / file).items()
                 for line in lines for shape in goals.draw(line, 5, f"1 {name}")]
        words = [word for shape in drawn for word in ("--shape", shape)]
        done = subprocess.run([ROOFLANE, "bench", "--dry-run", "-v", "hwy", "--threads", "1",
                               *words], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout.count("\n")), (0, len(drawn)), done.stderr)

    def test_every_class_of_low_precision_has_a_goal_and_every_goal_a_class(self):
        who = sides.LOW_PRECISION
        shapes = goals.read_shapes(self.data / "lowp_shapes.txt", "full")
        targets = goals.read_targets(self.data / "lowp_targets.txt", who.machines)
        self.assertEqual(set(shapes), set(targets))
        self.assertEqual(set(shapes), set(goals.read_drawn(self.data / "lowp_shapes.txt")))
        for name in shapes:
            for machine in who.machines:
                target = goals.target_for(targets, name, 1, machine)
                self.assertTrue(target and target.must, (name, machine))

    def test_levels_grow(self):
        for file in ("shapes.txt", "opencl_shapes.txt"):
            quick, default, full = ({(name, line) for name, lines in
                                     goals.read_shapes(self.data / file, level).items()
                                     for line in lines} for level in goals.LEVELS)
            self.assertTrue(quick < default < full)

    def test_every_class_of_a_device_has_a_goal_and_every_goal_a_class(self):
        who = sides.DEVICE
        shapes = goals.read_shapes(self.data / "opencl_shapes.txt", "full")
        targets = goals.read_targets(self.data / "opencl_targets.txt", who.machines)
        self.assertEqual(set(shapes), set(targets))
        for name in shapes:
            for machine in who.machines:
                target = goals.target_for(targets, name, 0, machine)
                self.assertTrue(target and target.must, (name, machine))
        for target in (target for lines in targets.values() for target in lines):
            for condition in (*target.must, *target.aim):
                self.assertIn(condition.what, {"roof", "best", *who.peers})
                self.assertFalse(condition.each)  # every problem is judged by itself

    def test_every_class_has_a_goal_on_every_machine_and_every_goal_a_class(self):
        shapes = goals.read_shapes(self.data / "shapes.txt", "full")
        targets = goals.read_targets(self.data / "targets.txt", sides.CPU.machines)
        self.assertEqual(set(shapes), set(targets))
        for name in shapes:
            for machine in ("zen5", "sapphire-rapids"):
                for threads in (1, 2, 16):
                    target = goals.target_for(targets, name, threads, machine)
                    self.assertTrue(target and target.must, (name, machine, threads))
        known = {"roof", "best", *sides.CPU.peers}
        for conditions in (side for lines in targets.values() for target in lines
                           for side in (target.must, target.aim)):
            self.assertLessEqual({condition.what for condition in conditions}, known)


class Peers(unittest.TestCase):
    """What is asked of the program before it measures."""

    def test_each_peer_is_asked_for_by_itself_and_its_reason_kept(self):
        def answer(name: str, **more) -> str:
            return json.dumps({"kernels": [{"variants": [{"name": name, **more}]}]})

        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "rooflane")
            program.write_text(f"""#!/bin/sh
case "$*" in
  *"--peers numba"*) echo '{answer("numba", available=False, reason="No module named numba")}' ;;
  *"--peers numpy"*) echo '{answer("numpy", available=True)}' ;;
  *"--peers "*) echo 'rooflane: --peers: it cannot be had' >&2; exit 2 ;;
  *) echo '{answer("hwy", available=True)}' ;;
esac
""", encoding="utf-8")
            program.chmod(0o755)
            here, absent = measuring.find_peers(program, sides.CPU)
        self.assertEqual(here, {"hwy", "numpy"})
        self.assertEqual(absent["numba"], "No module named numba")
        self.assertEqual(absent["torch"], "--peers: it cannot be had")
        self.assertEqual(absent["onednn"], "not in this build")


if __name__ == "__main__":
    ROOFLANE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1))
    sys.path.insert(0, str(ROOT / "scripts"))
    from target_table import goals, measuring, sides  # noqa: E402
    skip.main(sys.argv)

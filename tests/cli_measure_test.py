#!/usr/bin/env python3
"""verify, bench and roofline as a user types them: rows, files, statuses, variants that cheat,
crash and hang; every verb's examples. cli_measure_test.py ROOFLANE ROOFLANE_WITH_FAKES.
"""
import concurrent.futures
import csv
import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import tempfile
import termios
import time
from pathlib import Path

import skip
import tiny_llama
from command_line import PATIENCE, SMALL, VERBS, CommandLine, is_only_suspect, main

WIPE = b"\r\033[K"  # what a line of progress begins with, and what removes it
CSV_HEADER_START = "schema_version,run_id,test_time,"


class Examples(CommandLine):
    def test_examples_work_when_pasted(self):
        texts = [self.succeed(verb, "--help").split("Examples:\n")[1] for verb in VERBS]
        with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as verbs:
            for ran in verbs.map(self.paste, texts):
                for line, status, said in ran:
                    with self.subTest(line):
                        if no_packages := skip.no_packages(status, said):
                            self.skipTest(no_packages)
                        self.assertIn(status, (0, 1) if is_only_suspect(said) else (0,), said)

    def paste(self, text: str) -> list[tuple[str, int, str]]:
        """Lines run one after another in an empty folder: each with its status and what it said.
        Limits take 15 seconds where no time is given for them: here they take less."""
        env = {"PATH": os.path.dirname(os.path.abspath(self.rooflane)) + ":" + os.environ["PATH"]}
        ran = []
        with tempfile.TemporaryDirectory() as empty:
            if "SmolLM2" in text:  # the reader has it
                Path(empty, "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(
                    tiny_llama.file_of(tiny_llama.metadata(), tiny_llama.tensors()))
            for line in text.strip().splitlines():
                brief = re.match(r" *rooflane bench (?!.*--(ceilings-time|dry-run) )", line + " ")
                # Containers may allow no jail; judge_cheats_test.py asks for one.
                judged = re.match(r" *rooflane judge \S+\.c ", line)
                more = " --ceilings-time 0.5" * bool(brief) + " --unsafe" * bool(judged)
                result = subprocess.run(
                    line.strip() + more, shell=True, cwd=empty,
                    capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE,
                    env={**os.environ, **env})
                said = result.stdout + result.stderr + "".join(
                    file.read_text() for file in Path(empty).glob("*.txt"))
                ran.append((line.strip(), result.returncode, said))
        return ran


class Verify(CommandLine):
    def test_one_line_per_case(self):
        out = self.succeed("verify", "--shape", SMALL, "--shape", "softmax:rows=3,cols=1..3+1",
                           "-v", "scalar,hwy", "--threads", "1")
        lines = out.splitlines()
        self.assertEqual(len(lines), 8)
        for line in lines:
            self.assertRegex(line, r"^PASSED +(gemm|softmax):\S+ variant=(scalar|hwy)"
                                   r".*  error_over_bound=[0-9.e+-]+( \(\w+\))?$")

    def test_what_one_distribution_alone_shows_is_found_and_named(self):
        shown = "denormals"
        others = "uniform,wide,cancelling,constant,outlier,ties"
        for shape in (SMALL, "add:rows=4,cols=9"):
            with self.subTest(shape):
                case = ("verify", "-v", "fake-flushing", "--shape", shape)
                got, out, err = self.call(*case, "--distribution", others, program=self.fakes)
                self.assertEqual((got, err), (0, ""), out)
                self.assertRegex(out, r"^PASSED ")
                for more in ((), ("--distribution", shown)):
                    got, out, err = self.call(*case, *more, program=self.fakes)
                    self.assertEqual(got, 1, out + err)
                    self.assertRegex(out, rf"^FAILED .*  {shown} inputs: element \[\d+,\d+\] is ")
                    self.assertIn(f"--distribution {shown}\n", err)

    def test_distributions_are_named_and_those_without_a_meaning_say_why(self):
        self.refuse(2, ["--distribution", "'wild'", "nearest is 'wide'", "denormals"],
                    "verify", "--shape", SMALL, "--distribution", "wild")
        integers = "gemm:m=4,n=4,k=4,a_type=s8,b_type=s8,c_type=s32"
        out = self.succeed("verify", "--shape", integers, "-v", "scalar", "--distribution", "wide")
        self.assertRegex(out, r"^SKIPPED .*  no wide inputs: no operand holds real numbers")
        out = self.succeed("verify", "--shape", SMALL, "-v", "scalar", "--distribution",
                           "wide,ties", "--seed", "7")
        self.assertRegex(out, r"^PASSED .* \((wide|ties)\)\n$")

    def test_a_preset_from_a_file(self):
        self.write("mine.txt", b"# my shapes\nsoftmax:rows=2,cols=3  # small\n\ngemm:m=1,n=1,k=1\n")
        out = self.succeed("verify", "--preset", "mine.txt", "-v", "scalar")
        self.assertEqual(len(out.splitlines()), 2)
        self.write("bad.txt", b"softmax:rows=2,cols=3\nsoftmax:rows=2\n")
        self.refuse(2, ["bad.txt: line 2", "cols"], "verify", "--preset", "bad.txt")
        self.refuse(2, ["'edg'", "nearest is 'edge'"], "verify", "--preset", "edg")

    def test_cheats_and_crashes_fail_with_a_command_that_repeats_them(self):
        expected = {"fake-zeros": "FAILED", "fake-swapped": "FAILED",
                    "fake-input-changer": "FAILED", "fake-crash": "RUNTIME_ERROR",
                    "fake-exit": "RUNTIME_ERROR"}
        for variant, status in expected.items():
            with self.subTest(variant):
                got, out, err = self.call("verify", "-v", variant + ",scalar", "--shape", SMALL,
                                          "--threads", "1", program=self.fakes)
                if variant == "fake-crash" and got == 0:
                    continue  # it lives until its second run
                self.assertEqual(got, 1, out + err)
                self.assertRegex(out, rf"(?m)^{status} +{SMALL} variant={variant}")
                self.assertRegex(out, r"(?m)^PASSED +\S+ variant=scalar")
                self.assertIn(f"rooflane verify -v {variant} --shape {SMALL} --seed 1", err)

    def test_nothing_is_left_behind_when_it_is_killed(self):
        os.mkdir(self.path("tmp"))
        with subprocess.Popen([self.fakes, "verify", "-v", "fake-hang", "--shape", SMALL],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env={**os.environ, "TMPDIR": self.path("tmp")}) as process:
            time.sleep(1)  # its worker hangs by now, or still starts: nothing is left either way
            self.assertIsNone(process.poll())
            process.kill()
        self.assertEqual(os.listdir(self.path("tmp")), [])

    def test_a_hang_is_a_timeout(self):
        got, out, err = self.call("verify", "-v", "fake-hang", "--shape", SMALL, "--timeout", "4",
                                  "--threads", "1", program=self.fakes)
        self.assertEqual(got, 1, out + err)
        self.assertTrue(out.startswith("TIMEOUT"), out)
        self.gemm_arrays()
        self.refuse(1, ["TIMEOUT", "fake-hang"], "run", "gemm", "-v", "fake-hang", "--timeout",
                    "4", "--in", "a=a.npy", "--in", "b=b.npy", "--out", "c=c.npy",
                    program=self.fakes)
        self.assertFalse(os.path.exists(self.path("c.npy")))

    def test_a_run_that_writes_outside_its_output_keeps_no_file(self):
        self.gemm_arrays()
        self.refuse(1, ["FAILED", "fake-overrun", "wrote outside the output"], "run", "gemm", "-v",
                    "fake-overrun", "--in", "a=a.npy", "--in", "b=b.npy", "--out", "c=c.npy",
                    program=self.fakes)
        self.assertFalse(os.path.exists(self.path("c.npy")))

    def test_a_named_variant_that_refuses_everything_is_status_3(self):
        got, out, _ = self.call("verify", "-v", "fake-unsupported,scalar", "--shape", SMALL,
                                "--threads", "1", program=self.fakes)
        self.assertEqual(got, 3)
        self.assertRegex(out, r"(?m)^UNSUPPORTED .*never in the mood")


class Bench(CommandLine):
    QUICK = ["--min-time", "0.001", "--threads", "1", "--ceilings-time", "0.1"]

    def test_rows_go_to_standard_output(self):
        out = self.succeed("bench", "--shape", SMALL, "-v", "scalar", *self.QUICK)
        self.assertTrue(out.startswith(CSV_HEADER_START), out)
        rows = list(csv.DictReader(io.StringIO(out)))
        self.assertEqual([(r["kernel"], r["variant"], r["status"]) for r in rows],
                         [("gemm", "scalar", "PASSED")])

    def test_what_is_right_for_ordinary_inputs_only_keeps_its_speed_and_never_wins(self):
        got, out, err = self.call("bench", "--shape", SMALL, "-v", "scalar,fake-flushing",
                                  *self.QUICK, program=self.fakes)
        self.assertEqual(got, 0, err)
        rows = {row["variant"]: row for row in csv.DictReader(io.StringIO(out))}
        self.assertEqual(rows["scalar"]["status"], "PASSED")
        row = rows["fake-flushing"]
        self.assertEqual(row["status"], "INACCURATE")
        self.assertRegex(row["reason"], rf"^denormals inputs: element .* \({SMALL}\)$")
        self.assertGreater(float(row["p50_ns"]), 0)
        self.assertLessEqual(float(row["err_value"]), 1)

    def test_a_distribution_is_verified_and_timed_and_rows_name_it(self):
        got, out, err = self.call("bench", "--shape", SMALL, "-v", "scalar,fake-flushing",
                                  "--distribution", "denormals", *self.QUICK, program=self.fakes)
        self.assertEqual(got, 1, err)
        rows = {row["variant"]: row for row in csv.DictReader(io.StringIO(out))}
        self.assertEqual({row["distribution"] for row in rows.values()}, {"denormals"})
        self.assertEqual(rows["scalar"]["status"], "PASSED")
        self.assertGreater(float(rows["scalar"]["p50_ns"]), 0)
        self.assertEqual(rows["fake-flushing"]["status"], "FAILED")
        self.assertRegex(rows["fake-flushing"]["reason"], r"^denormals inputs: element ")
        self.refuse(2, ["--distribution", "'wild'", "nearest is 'wide'"],
                    "bench", "--shape", SMALL, "--distribution", "wild")
        self.refuse(2, ["--distribution", "--ladder"],
                    "bench", "--shape", SMALL, "--ladder", "--distribution", "wide")

    def test_files_and_summary(self):
        self.write("rows.csv", b"old\n")
        out = self.succeed("bench", "--shape", SMALL, "-v", "scalar,hwy", *self.QUICK, "--csv",
                           "rows.csv", "--json", "rows.json")
        self.assertIn("x scalar", out)
        self.assertLessEqual(max(map(len, out.splitlines())), 120)
        # "What to use" comes last here, and first if the rows are read again.
        answer = out.rstrip().split("\n\n")[-1]
        self.assertRegex(answer, r"\Akernel +size .*\ngemm +\S+ +1 thread +(hwy|scalar) ")
        rows = list(csv.DictReader(io.StringIO(self.read("rows.csv").decode())))
        self.assertEqual(sorted(r["variant"] for r in rows), ["hwy", "scalar"])
        samples = list(csv.DictReader(io.StringIO(self.read("rows.csv.samples.csv").decode())))
        self.assertEqual({s["row"] for s in samples}, {"0", "1"})
        document = json.loads(self.read("rows.json"))
        self.assertEqual(len(document["rows"]), 2)
        for key in ["arguments", "workers", "machine", "slowdowns", "ceilings"]:
            self.assertIn(key, document["context"])
        for row in rows:  # gemm needs multiply-adds only: the model is the roof
            self.assertGreater(float(row["model_ns"]), 0)
            self.assertEqual(row["model_pct"], row["roof_pct"])
        problems = out.removesuffix(f"\n{answer}\n")
        self.assertEqual(self.succeed("roofline", "rows.csv"), f"{answer}\n\n{problems}")
        self.assertIn("| variant |", self.succeed("roofline", "--markdown", "rows.csv"))

    def test_what_slows_the_machine_down_is_noted_once_and_kept(self):
        passive = {"OMP_WAIT_POLICY": "passive"}
        note = "note: OMP_WAIT_POLICY=passive: threads sleep between parallel regions; fix: unset "
        status, _, err = self.call("bench", "--shape", SMALL, "-v", "scalar", *self.QUICK, "--json",
                                   "rows.json", env=passive)
        self.assertEqual(status, 0, err)
        self.assertEqual(err.count(note + "OMP_WAIT_POLICY\n"), 1, err)
        self.assertNotIn("mend", err)
        slowdowns = json.loads(self.read("rows.json"))["context"]["slowdowns"]
        self.assertIn("unset OMP_WAIT_POLICY", [slowdown["mend"] for slowdown in slowdowns])
        for nothing_measured in ["--dry-run", "--benchmark_list_tests"]:
            _, _, err = self.call("bench", "--shape", SMALL, "-v", "scalar", nothing_measured,
                                  env=passive)
            self.assertNotIn("OMP_WAIT_POLICY", err)

    def test_notes_stand_below_the_last_table(self):
        both = subprocess.run(
            [self.rooflane, "bench", "--shape", SMALL, *self.QUICK, "--csv", "rows.csv"],
            cwd=self.folder.name, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=PATIENCE, env={**os.environ, "OMP_WAIT_POLICY": "passive",
                                   "OCL_ICD_VENDORS": self.path("none")}).stdout
        lines = both.splitlines()
        notes = [i for i, line in enumerate(lines) if line.startswith("note: ")]
        self.assertTrue(any("OMP_WAIT_POLICY" in lines[i] for i in notes), both)
        self.assertEqual(notes, list(range(len(lines) - len(notes), len(lines))), both)

    def on_terminal(self, *arguments: str, columns: int = 40,
                    interrupted: bool = False) -> tuple[int, str, str]:
        """Exit status, standard output, and what a terminal of so many columns is sent by standard
        error; at the first line of progress the user may press Control and C."""
        if not skip.has_terminals():
            self.skipTest(skip.reason("no pseudo-terminals here"))
        ours, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 25, columns, 0, 0))
        with subprocess.Popen([self.rooflane, *arguments], cwd=self.folder.name, text=True,
                              stdout=subprocess.PIPE, stderr=terminal) as process:
            os.close(terminal)
            sent = b""
            while True:
                try:
                    sent += os.read(ours, 4096)
                except OSError:  # nobody writes any more
                    break
                if interrupted and b"[" in sent.replace(WIPE, b""):
                    process.send_signal(signal.SIGINT)
                    interrupted = False
            out = process.stdout.read()
            status = process.wait(PATIENCE)
        os.close(ours)
        return status, out, sent.decode()

    def test_progress_on_a_terminal_fits_it_and_leaves_nothing_behind(self):
        arguments = ["bench", "--shape", "gemm:m=5,n=7,k=3,alpha=0.5,trans_a=1,trans_b=1", "-v",
                     "scalar,hwy", *self.QUICK]
        status, out, sent = self.on_terminal(*arguments)
        self.assertEqual(status, 0, out)
        self.assertNotIn("\033", out)
        first, *shown = sent.split(WIPE.decode())
        self.assertEqual(first, "")
        self.assertRegex(shown[-1], r"\A(note: .*\r\n)*\Z")  # all that is left
        for line in filter(None, shown[:-1]):
            self.assertRegex(line, r"\A\[[ \d]{3} %(, \d+:\d\d left)?\] (ceilings: |.*gemm:)")
            self.assertLess(len(line), 40)
        self.assertTrue(any("ceilings: " in line for line in shown), sent)
        self.assertTrue(any("gemm:" in line for line in shown), sent)
        # It measures until it is interrupted, however late that is.
        status, _, sent = self.on_terminal(*arguments, "--max-time", "600", "--interval", "0.0001",
                                           interrupted=True)
        self.assertEqual(status, -signal.SIGINT)
        self.assertTrue(sent.endswith(WIPE.decode()), sent)

    def test_cold_rows_say_so(self):
        for cache in ["cold", "warm"]:
            # Other tests may have slowed the ceilings down: a fast row is SUSPECT beside them.
            _, out, err = self.call("bench", "--shape", "softmax:rows=64,cols=512", "-v",
                                    "scalar,hwy", "--cache", cache, *self.QUICK)
            rows = list(csv.DictReader(io.StringIO(out)))
            self.assertEqual(len(rows), 2, err)
            for row in rows:
                self.assertEqual(row["cache"], cache)
                self.assertIn(row["status"], ("PASSED", "SUSPECT"), row["reason"])
                if cache == "cold":
                    self.assertEqual(row["runs_per_sample"], "1")
                self.assertGreater(float(row["model_ns"]), 0)

    def test_bad_arguments_leave_the_csv_as_it_was(self):
        self.write("rows.csv", b"old\n")
        csv_file = ["--csv", "rows.csv"]
        self.refuse(2, ["--shape"], "bench", "--shape", "gemm:m=1", *csv_file)
        self.refuse(2, ["--json"], "bench", "--shape", SMALL, "--json", "none/x.json", *csv_file)
        for same in ["./rows.csv", "rows.csv.samples.csv"]:
            self.refuse(2, ["--json", "--csv"], "bench", "--shape", SMALL, "--json", same,
                        *csv_file)
        self.refuse(2, ["--benchmark_filtr", "--benchmark_filter"], "bench", "--shape", SMALL,
                    "--benchmark_filtr=x", *csv_file)
        self.refuse(2, ["--benchmark_filter", "matches no case"], "bench", "--shape", SMALL,
                    "--benchmark_filter=nothing", *csv_file)
        self.refuse(2, ["--cache", "'warm'"], "bench", "--shape", SMALL, "--cache", "wram",
                    *csv_file)
        self.refuse(2, ["--timer"], "bench", "--shape", SMALL, "--timer", "x", *csv_file)
        self.refuse(2, ["--min-time"], "bench", "--shape", SMALL, "--min-time", "-1", *csv_file)
        self.refuse(2, ["--min-time"], "bench", "--shape", SMALL, "--min-time", "nan", *csv_file)
        self.refuse(2, ["--ceilings-time"], "bench", "--shape", SMALL, "--ceilings-time", "0",
                    *csv_file)
        self.refuse(3, ["MiB"], "bench", "--shape", "gemm:m=1000000,n=1000000,k=1000000", *csv_file)
        self.assertEqual(self.read("rows.csv"), b"old\n")
        self.assertEqual(os.listdir(self.folder.name), ["rows.csv"])

    def test_dry_run_measures_nothing(self):
        out = self.succeed("bench", "--dry-run", "--shape", SMALL, "-v", "scalar,hwy", "--csv",
                           "rows.csv")
        self.assertEqual(out.splitlines()[0], f"{SMALL} variant=scalar")
        self.assertFalse(os.path.exists(self.path("rows.csv")))

    def test_a_bad_row_is_status_1_and_the_rest_runs_on(self):
        got, out, err = self.call("bench", "--shape", SMALL, "-v", "scalar,fake-zeros,fake-crash",
                                  *self.QUICK, program=self.fakes)
        self.assertEqual(got, 1, err)
        rows = {r["variant"]: r for r in csv.DictReader(io.StringIO(out))}
        self.assertEqual(rows["scalar"]["status"], "PASSED")
        self.assertEqual(rows["fake-zeros"]["status"], "FAILED")
        self.assertEqual(rows["fake-zeros"]["p50_ns"], "")
        self.assertEqual(rows["fake-crash"]["status"], "RUNTIME_ERROR")

    def test_roofline_takes_a_pattern_that_also_names_samples_files(self):
        rows = self.path("pattern.csv")
        self.succeed("bench", "--shape", SMALL, "-v", "scalar", *self.QUICK, "--csv", rows)
        alone = self.succeed("roofline", rows)
        self.assertIn("scalar", alone)
        self.assertEqual(self.succeed("roofline", rows, rows + ".samples.csv"), alone)
        self.refuse(2, ["samples.csv", "not a CSV of"], "roofline", rows + ".samples.csv")

    def test_phases_explain_the_lost_share_and_make_a_trace(self):
        shape = "gemm:m=160,n=200,k=300"
        # These come near the roof, which a tenth of a second on a busy machine may show too low.
        self.succeed("bench", "--shape", shape, "-v", "scalar,hwy,blas", "--min-time",
                     "0.001", "--threads", "1,2", "--ceilings-time", "2", "--launches", "1",
                     "--csv", "rows.csv", "--phases", "--trace", "trace.json")
        rows = list(csv.DictReader(io.StringIO(self.read("rows.csv").decode())))
        phases = list(csv.DictReader(io.StringIO(self.read("rows.csv.phases.csv").decode())))
        known = {str(i) for i, row in enumerate(rows) if row["variant"] != "blas"}
        self.assertEqual({line["row"] for line in phases}, known)
        for row in known:
            self.phases_of_a_row(int(rows[int(row)]["threads"]),
                                 [line for line in phases if line["row"] == row])
        out = self.succeed("roofline", "--explain", "rows.csv", "rows.csv.phases.csv")
        self.assertLessEqual(max(map(len, out.splitlines())), 120)
        self.assertEqual(len(re.findall(rf"(?m)^{shape}  [12] threads?  warm", out)), 2)
        self.assertIn("no phases of: blas\n", out)
        self.assertEqual(len(re.findall(r"(?m)^variant +time +% of roof +lost .*computing$", out)),
                         2)
        lines = re.findall(r"(?m)^(?:hwy|scalar) .*$", out)
        self.assertEqual(len(lines), len(known))
        for cells in lines:
            reached, lost, *parts = map(float, cells.split()[3:])
            self.assertAlmostEqual(reached + lost, 100, delta=0.11)
            # Each is rounded to a tenth, and a column of zeros is left out.
            self.assertAlmostEqual(sum(parts), lost, delta=0.5)
        self.assertIn("| variant |", self.succeed("roofline", "--explain", "--markdown",
                                                  "rows.csv"))
        self.trace_is_sound(len(known))

    def phases_of_a_row(self, threads: int, lines: list[dict[str, str]]):
        run = {line["what"]: float(line["ns"]) for line in lines
               if line["thread"] == "" and line["ns"]}
        self.assertGreater(run["recorded"], 0)
        self.assertGreater(run["plain"], 0)
        spent = dict.fromkeys(map(str, range(threads)), 0.0)
        for line in lines:
            if line["thread"]:
                spent[line["thread"]] += float(line["ns"])
        for ns in spent.values():  # no thread spends more than there is
            self.assertLessEqual(ns, run["recorded"] * 1.001)
        self.assertIn("compute", {line["what"] for line in lines})

    def trace_is_sound(self, rows: int):
        """What Perfetto needs: complete events that nest, each thread and process with a name."""
        events = json.loads(self.read("trace.json"))["traceEvents"]
        named = {(event["name"], event["pid"], event["tid"]) for event in events
                 if event["ph"] == "M"}
        self.assertTrue(all(event["args"]["name"] for event in events if event["ph"] == "M"))
        self.assertEqual(len([name for name in named if name[0] == "process_name"]), rows)
        open_until: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for event in (event for event in events if event["ph"] != "M"):
            self.assertEqual(event["ph"], "X")
            self.assertIn(event["name"], ("run", "compute", "tail", "pack", "reduce", "store",
                                          "start", "wait"))
            thread = event["pid"], event["tid"]
            self.assertIn(("thread_name", *thread), named)
            begin, length = round(event["ts"] * 1000), round(event["dur"] * 1000)
            self.assertGreaterEqual(begin, 0)
            self.assertGreaterEqual(length, 0)
            inside = open_until.setdefault(thread, [])
            while inside and inside[-1][1] <= begin:
                inside.pop()
            if inside:
                self.assertLessEqual(begin + length, inside[-1][1])
            inside.append((begin, begin + length))
        self.assertEqual(len({process for process, _ in open_until}), rows)

    def test_phases_need_files_and_explanations_phases(self):
        self.refuse(2, ["--phases", "--csv"], "bench", "--shape", SMALL, "--phases")
        self.refuse(2, ["--trace", "none/t.json"], "bench", "--shape", SMALL, "--trace",
                    "none/t.json")
        for same in ["rows.csv", "rows.csv.samples.csv", "rows.csv.phases.csv"]:
            self.refuse(2, ["--trace", "--csv"], "bench", "--shape", SMALL, "--csv", "rows.csv",
                        "--trace", same)
        self.assertEqual(os.listdir(self.folder.name), [])
        self.succeed("bench", "--shape", SMALL, "-v", "scalar", *self.QUICK, "--csv", "rows.csv")
        self.refuse(2, ["--explain", "rows.csv", "bench --phases"], "roofline", "--explain",
                    "rows.csv")
        self.refuse(2, ["--explain", "--json"], "roofline", "--explain", "rows.csv", "--json")
        self.write("rows.csv.phases.csv", b"row,thread\n")
        self.refuse(2, ["rows.csv.phases.csv", "header"], "roofline", "--explain", "rows.csv")
        self.write("rows.csv.phases.csv", b"row,thread,what,ns,count\n0,0,pakc,1,1\n")
        self.refuse(2, ["rows.csv.phases.csv", "line 2"], "roofline", "--explain", "rows.csv")
        # Another run's phases would be taken for its own.
        self.succeed("bench", "--shape", SMALL, "-v", "scalar", *self.QUICK, "--csv", "rows.csv")
        self.assertFalse(os.path.exists(self.path("rows.csv.phases.csv")))

    def test_roofline_refuses_what_is_no_csv_of_rows(self):
        self.refuse(2, ["FILE"], "roofline")
        self.refuse(2, ["none.csv"], "roofline", "none.csv")
        self.write("x.csv", b"a,b\n1,2\n")
        self.refuse(2, ["x.csv", "schema_version"], "roofline", "x.csv")
        self.write("x.csv", b"schema_version,kernel,variant,shape,status\n1,gemm,hwy,m=1,PASSD\n")
        self.refuse(2, ["x.csv", "PASSD"], "roofline", "x.csv")
        self.write("x.csv", b"")
        self.refuse(2, ["x.csv", "empty"], "roofline", "x.csv")


if __name__ == "__main__":
    main()

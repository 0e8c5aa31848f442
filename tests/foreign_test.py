#!/usr/bin/env python3
"""Variants from outside the build: foreign_test.py ROOFLANE PLUGINS_DIR FAKE_PEERS.

Plugins, another build, and peers that cheat, die or hang, beside honest ones that must not suffer.
Python's standard library only. Nothing depends on speed.
"""
import csv
import glob
import json
import os
import re
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

import skip

ROOFLANE, PLUGINS, FAKE_PEERS = "", "", ""
SMALL = "softmax:rows=4,cols=9"
TIMEOUT = "6"  # seconds: only what hangs takes so long, however busy the machine is
# Peers are started by the name python3, which must be this one: a version manager's script of that
# name starts dozens of processes first, and the tests start hundreds of peers.
SEARCHED = os.pathsep.join([os.path.dirname(os.path.realpath(sys.executable)), os.environ["PATH"]])
QUICK = ("--threads", "1", "--min-time", "0.0001", "--ceilings-time", "0.1")


class Foreign(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def script(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), stat.S_IRWXU)
        return self.path(name)

    def call(self, *arguments, env=None):
        result = subprocess.run(
            [ROOFLANE, *arguments], cwd=self.folder.name, capture_output=True, text=True,
            timeout=240, stdin=subprocess.DEVNULL,
            env={**os.environ, "PATH": SEARCHED, "ROOFLANE_PEERS": FAKE_PEERS, **(env or {})})
        return result.returncode, result.stdout, result.stderr

    @staticmethod
    def recorded(path):
        """A path as results name it: relative to the tree that the program was built in."""
        tree = os.path.dirname(os.path.dirname(ROOFLANE))
        in_tree = os.path.isdir(os.path.join(tree, "scripts")) and path.startswith(tree + os.sep)
        return os.path.relpath(path, tree) if in_tree else path

    def workers(self, name):
        """What a run's document says of each variant's worker."""
        with open(self.path(name), encoding="utf-8") as file:
            return {w["variant"]: w for w in json.load(file)["context"]["workers"]}

    def refuse(self, status, words, *arguments):
        """One line on standard error that holds all the words."""
        got, out, err = self.call(*arguments)
        context = f"{arguments}\n{out}\n{err}"
        self.assertEqual(got, status, context)
        self.assertEqual(out, "", context)
        lines = [line for line in err.splitlines()
                 if not line.startswith(("note: ", "prepared"))]
        self.assertEqual(len(lines), 1, context)
        for word in words:
            self.assertIn(word, lines[0], context)

    def rows(self, *arguments, status=0, untimed=None, **options):
        """The rows of a bench by variant; timed are the PASSED ones, or all but `untimed`."""
        got, out, err = self.call("bench", *arguments, *QUICK, "--csv", "rows.csv", **options)
        self.assertEqual(got, status, f"{arguments}\n{out}\n{err}")
        with open(self.path("rows.csv"), encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            if row["status"] in untimed if untimed else row["status"] != "PASSED":
                self.assertNotEqual(row["reason"], "", row)
                self.assertEqual(row["p50_ns"], "", row)
        return {row["variant"]: row for row in rows}

    def verified(self, *arguments, status=0, **options):
        """The statuses of a verify by variant."""
        got, out, err = self.call("verify", *arguments, "--threads", "1", **options)
        self.assertEqual(got, status, f"{arguments}\n{out}\n{err}")
        return {line.split("variant=")[1].split()[0]: line.split()[0] for line in out.splitlines()}


class Plugins(Foreign):
    def plugin(self, name, file=None):
        return f"{name}=" + os.path.join(PLUGINS, (file or f"odd_{name.replace('-', '_')}") + ".so")

    def test_the_example_passes_every_edge_shape(self):
        got, out, err = self.call("verify", "-k", "softmax", "-v", "mine", "--plugin",
                                  self.plugin("mine", "softmax"), "--threads", "1,2")
        self.assertEqual(got, 0, out + err)
        mine = [line for line in out.splitlines() if "variant=mine" in line]
        self.assertGreater(len(mine), 10)
        # It takes only float32, and says so without a function for that.
        for line in mine:
            refuses = any(word in line for word in (",type=", ",scale=", ",mask=1"))
            self.assertEqual(line.split()[0], "UNSUPPORTED" if refuses else "PASSED")

    def test_the_example_is_timed_beside_ours_and_takes_part_whatever_is_named(self):
        rows = self.rows("--shape", SMALL, "-v", "scalar", "--plugin",
                         self.plugin("mine", "softmax"))
        self.assertEqual(set(rows), {"scalar", "mine"})
        self.assertEqual(rows["mine"]["status"], "PASSED")
        self.assertEqual(rows["mine"]["backend"], "plugin")
        self.assertGreater(float(rows["mine"]["p50_ns"]), 0)

    def test_list_shows_all_variants_of_a_plugin(self):
        got, out, err = self.call("list", "--json", "--plugin", self.plugin("wrong"),
                                  "--plugin", self.plugin("mine", "softmax"))
        self.assertEqual(got, 0, err)
        found = {(kernel["name"], variant["name"], variant["threads"])
                 for kernel in json.loads(out)["kernels"] for variant in kernel["variants"]
                 if variant.get("backend") == "plugin"}
        self.assertEqual(found, {("softmax", "wrong", "one"), ("layernorm", "wrong-second", "many"),
                                 ("softmax", "mine", "one")})

    def test_wrong_crashing_hanging_and_failing_plugins_do_not_touch_the_others(self):
        odd = {"wrong": ("FAILED", "expected"), "crash": ("RUNTIME_ERROR", "SIGABRT"),
               "hang": ("TIMEOUT", f"{TIMEOUT} s"), "run-fails": ("RUNTIME_ERROR", "out of ideas"),
               "plan-fails": ("RUNTIME_ERROR", "out of ideas")}
        plugins = [word for name in odd for word in ("--plugin", self.plugin(name))]
        rows = self.rows("--shape", SMALL, "-v", "scalar", "--timeout", TIMEOUT, *plugins,
                         "--plugin", self.plugin("mine", "softmax"), status=1)
        self.assertEqual(set(rows), {"scalar", "mine", *odd})
        for name, (status, reason) in odd.items():
            with self.subTest(name):
                self.assertEqual(rows[name]["status"], status, rows[name]["reason"])
                self.assertIn(reason, rows[name]["reason"])
        self.assertEqual(rows["wrong"]["library"], "Odd 1.0")
        self.assertEqual(rows["scalar"]["status"], "PASSED")
        self.assertEqual(rows["mine"]["status"], "PASSED")

    def test_a_plugin_that_does_its_work_at_times_only_is_told_within_the_series(self):
        shape = "softmax:rows=8,cols=64"
        plugins = [word for name in ("memo", "skips") for word in ("--plugin", self.plugin(name))]
        rows = self.rows("--shape", shape, "-v", "scalar", *plugins, status=1)
        for name, reason in (("memo", "replay: "), ("skips", "skipped-calls: ")):
            self.assertEqual(rows[name]["status"], "FAILED", rows[name])
            self.assertTrue(rows[name]["reason"].startswith(reason), rows[name]["reason"])
        self.assertEqual(rows["scalar"]["status"], "PASSED")

    def test_what_a_plugin_refuses_is_unsupported_with_its_reason(self):
        rows = self.rows("--shape", "softmax:rows=2,cols=17", "-v", "scalar", "--plugin",
                         self.plugin("wrong"))
        self.assertEqual(rows["wrong"]["status"], "UNSUPPORTED")
        self.assertEqual(rows["wrong"]["reason"], "only up to 16 columns")

    def test_constants_go_to_those_who_pack_them_and_are_refused_by_the_others(self):
        gemm = ("--plugin", self.plugin("own", "gemm_plugin"))
        shape = "gemm:m=5,n=7,k=3"
        self.assertEqual(self.verified("-v", "own,own-unpacked", "--shape", shape, *gemm),
                         {"own": "PASSED", "own-unpacked": "PASSED", "own-typed": "PASSED"})
        rows = self.rows("-v", "own,own-unpacked", "--shape", shape + ",prepack=1", *gemm, status=3)
        self.assertEqual(rows["own"]["status"], "PASSED")
        self.assertEqual(rows["own-unpacked"]["status"], "UNSUPPORTED")
        self.assertEqual(rows["own-unpacked"]["reason"], "the plugin takes no constants")
        rows = self.rows("-v", "own,scalar", "--shape", shape + ",beta=2", *gemm, status=3)
        self.assertEqual(rows["own"]["reason"], "only c = a*b")

    def test_a_plugin_takes_the_formats_that_it_names_and_the_tuning_that_the_user_gives(self):
        gemm = ("--plugin", self.plugin("own", "gemm_plugin"))
        shape = "gemm:m=5,n=7,k=3,a_type=bf16,b_type=bf16"
        rows = self.rows("-v", "scalar,own,own-typed", "--shape", shape, *gemm, status=3)
        self.assertEqual(rows["own-typed"]["status"], "PASSED")
        self.assertEqual(rows["own-typed"]["dtype"], "bfloat16+float32")
        self.assertEqual(rows["own-typed"]["tuning"], "double=0")
        self.assertEqual(rows["own"]["status"], "UNSUPPORTED")
        self.assertIn("bfloat16 a is not implemented", rows["own"]["reason"])
        rows = self.rows("-v", "own-typed", "--shape", shape, *gemm, "--tuning",
                         "own-typed:double=1", status=1)
        self.assertEqual(rows["own-typed"]["status"], "FAILED")
        self.refuse(2, ["'dubble'", "'double'"], "bench", "-v", "own-typed", "--shape", shape,
                    *gemm, "--tuning", "own-typed:dubble=1")

    def test_files_that_are_no_plugins_are_refused_in_one_line(self):
        for name, words in {"abi": ["version 99", "version 2"],
                            "old-abi": ["version 1", "tuning", "void*"],
                            "no-symbol": ["rooflane_describe"],
                            "kernel": ["'softmix'", "'softmax'"], "incomplete": ["'run'"],
                            "load-crash": ["SIGABRT"]}.items():
            for verb in (["bench", "--shape", SMALL], ["verify", "--shape", SMALL], ["list"]):
                with self.subTest(name, verb=verb[0]):
                    self.refuse(2, ["--plugin " + name, *words], *verb, "--plugin",
                                self.plugin(name))
        text = self.script("text.so", "no library")
        self.refuse(2, ["--plugin mine", "text.so"], "list", "--plugin", "mine=" + text)
        with open(os.path.join(PLUGINS, "softmax.so"), "rb") as file:
            half = file.read()[:5000]
        with open(self.path("half.so"), "wb") as file:
            file.write(half)
        self.refuse(2, ["--plugin mine", "half.so"], "list", "--plugin", "mine=half.so")

    def test_names_and_paths_of_plugins_are_checked(self):
        good = os.path.join(PLUGINS, "softmax.so")
        self.refuse(2, ["'hwy'", "exists"], "list", "--plugin", "hwy=" + good)
        self.refuse(2, ["'mine'", "exists"], "list", "--plugin", "mine=" + good, "--plugin",
                    "mine=" + good)
        self.refuse(2, ["'Mine=", "NAME=PATH"], "list", "--plugin", "Mine=" + good)
        self.refuse(2, ["NAME=PATH"], "list", "--plugin", good)
        self.refuse(2, ["'nowhere.so'"], "list", "--plugin", "mine=nowhere.so")
        self.refuse(2, ["'.'"], "list", "--plugin", "mine=.")

    def test_run_computes_ones_own_arrays_with_ones_own_plugin(self):
        self.assertEqual(self.call("inputs", "softmax", "--shape", SMALL, "--out", "p")[0], 0)
        for variant in ("mine", "scalar"):
            got, out, err = self.call("run", "softmax", "-v", variant, "--plugin",
                                      self.plugin("mine", "softmax"), "--in", "x=p/x.npy",
                                      "--out", f"y={variant}.npy")
            self.assertEqual(got, 0, out + err)
        values = {}
        for variant in ("mine", "scalar"):
            with open(self.path(variant + ".npy"), "rb") as file:
                values[variant] = struct.unpack("<36f", file.read()[-36 * 4:])
        for mine, ours in zip(values["mine"], values["scalar"]):
            self.assertAlmostEqual(mine, ours, delta=1e-6)
        self.refuse(2, ["SIGABRT"], "run", "softmax", "-v", "load-crash", "--plugin",
                    self.plugin("load-crash"), "--in", "x=p/x.npy", "--out", "y=y.npy")

    def test_a_failure_names_the_command_that_repeats_it(self):
        got, _, err = self.call("verify", "--shape", SMALL, "-v", "wrong", "--threads", "1",
                                "--plugin", self.plugin("wrong"))
        self.assertEqual(got, 1)
        self.assertIn("--plugin " + self.plugin("wrong"), err)


class Against(Foreign):
    def test_v_selects_namesakes_of_the_other_build(self):
        other = ("--shape", SMALL, "--against", "other=" + ROOFLANE)
        self.assertEqual(self.verified("-v", "scalar", *other),
                         {"scalar": "PASSED", "scalar@other": "PASSED"})
        self.assertEqual(self.verified("-v", "scalar@other", *other), {"scalar@other": "PASSED"})
        everything = self.verified(*other)
        self.assertEqual(everything["hwy@other"], "PASSED")
        ours = {name for name in everything if "@" not in name}
        self.assertEqual({name + "@other" for name in ours}, set(everything) - ours)

    def test_both_builds_share_rounds(self):
        rows = self.rows("--shape", SMALL, "-v", "hwy", "--against", "other=" + ROOFLANE, "--json",
                         "run.json")
        self.assertEqual({name: row["status"] for name, row in rows.items()},
                         {"hwy": "PASSED", "hwy@other": "PASSED"})
        self.assertEqual(rows["hwy"]["isa"], rows["hwy@other"]["isa"])
        self.assertEqual(rows["hwy@other"]["backend"], "highway")
        workers = self.workers("run.json")
        self.assertEqual(workers["hwy@other"]["command"], [self.recorded(ROOFLANE), "worker"])
        self.assertEqual(workers["hwy@other"]["environment"], workers["hwy"]["environment"])
        with open(self.path("rows.csv.samples.csv"), encoding="utf-8", newline="") as file:
            samples = list(csv.DictReader(file))
        rounds = {row: [(s["launch"], s["round"]) for s in samples if s["row"] == row]
                  for row in "01"}
        self.assertGreater(len(rounds["0"]), 2)
        self.assertEqual(sorted(rounds["0"]), sorted(rounds["1"]))

    def test_rows_of_another_build_name_its_commit(self):
        # A stand-in for another build: this one with another commit in its greeting.
        other = self.script("other", f"#!{sys.executable}\nimport subprocess, sys\n"
                            f"worker = subprocess.Popen([{ROOFLANE!r}, 'worker'], text=True,\n"
                            "  stdin=sys.stdin, stdout=subprocess.PIPE, bufsize=1)\n"
                            "for line in worker.stdout:\n"
                            "  print(line.replace('build_commit\":\"', 'build_commit\":\"not-'),\n"
                            "    end='', flush=True)\n")
        rows = self.rows("--shape", SMALL, "-v", "scalar", "--against", "other=" + other)
        self.assertEqual(rows["scalar@other"]["status"], "PASSED")
        self.assertEqual(rows["scalar@other"]["build_commit"],
                         "not-" + rows["scalar"]["build_commit"])
        self.assertEqual(rows["scalar@other"]["compiler"], rows["scalar"]["compiler"])

    def test_another_build_that_would_load_this_one_s_library_is_refused(self):
        environment = {"LD_LIBRARY_PATH": "/nowhere:" + os.path.dirname(ROOFLANE)}
        other = self.script("other", f"#!/bin/sh\nexec {ROOFLANE} worker\n")
        self.script("librooflane.so.0", "")
        got, _, err = self.call("list", "--against", "other=" + other, env=environment)
        self.assertEqual(got, 2, err)
        self.assertIn("--against other: LD_LIBRARY_PATH makes it load", err)
        got, _, err = self.call("list", "--against", "other=" + ROOFLANE, env=environment)
        self.assertEqual(got, 0, err)

    def test_programs_that_are_no_other_build_are_refused(self):
        hello = '#!/bin/sh\necho \'{"rooflane_worker":%s,"name":"rooflane","version":"0.1.0"}\'\n'
        for name, text, words in [
                ("old", hello % 1 + "read line\n", ["rooflane 0.1.0", "too old"]),
                ("new", hello % 2 + "read line\n", ["protocol 1"]),
                ("chatty", "#!/bin/sh\necho hello\nread line\n", ["'hello'"]),
                ("dead", "#!/bin/sh\nexit 4\n", ["status 4"]),
                ("mute", "#!/bin/sh\nsleep 100\n", [f"no greeting within {TIMEOUT} s"])]:
            with self.subTest(name):
                self.refuse(2, ["--against " + name, *words], "bench", "--shape", SMALL,
                            "--timeout", TIMEOUT, "--against", f"{name}={self.script(name, text)}")
        plain = self.script("plain", "x")
        os.chmod(plain, stat.S_IRUSR)
        self.refuse(2, ["cannot be executed"], "verify", "--against", "old=" + plain)
        self.refuse(2, ["'nowhere'"], "verify", "--against", "old=nowhere")
        self.refuse(2, ["NAME=PATH"], "verify", "--against", ROOFLANE)
        self.refuse(2, ["'a'", "exists"], "verify", "--against", "a=" + ROOFLANE, "--against",
                    "a=" + ROOFLANE)


class Peers(Foreign):
    def test_liars_and_the_dying_fail_and_the_honest_pass(self):
        expected = {
            "honest": ("PASSED", ""), "zeros": ("FAILED", "expected"),
            "short": ("FAILED", "140 bytes, expected 144"),
            "long": ("FAILED", "288 bytes, expected 144"), "untouched": ("FAILED", "nan"),
            "forgetful": ("FAILED", "after the measurement"),
            "leaves": ("RUNTIME_ERROR", "status 5"), "nonsense": ("RUNTIME_ERROR", "'nonsense'"),
            "no-time": ("RUNTIME_ERROR", "-1 ns"), "no-runs": ("RUNTIME_ERROR", "0 runs"),
            "refuses": ("UNSUPPORTED", "not in the mood")}
        rows = self.rows("--shape", SMALL, "-v", "scalar", "--peers",
                         ",".join([*expected, "absent"]), "--json", "run.json", status=1)
        self.assertEqual(set(rows), {"scalar", *expected})
        self.assertEqual(rows["scalar"]["status"], "PASSED")
        for name, (status, reason) in expected.items():
            with self.subTest(name):
                self.assertEqual(rows[name]["status"], status, rows[name]["reason"])
                self.assertIn(reason, rows[name]["reason"])
        honest = rows["honest"]
        self.assertEqual((honest["backend"], honest["library"]), ("python", "Fake 1.0"))
        self.assertLess(float(honest["err_value"]), 1)
        self.assertGreater(float(honest["err_value"]), 0)
        command = self.workers("run.json")["honest"]["command"]
        self.assertEqual(command[1:3], ["python3", self.recorded(FAKE_PEERS)])

    def test_a_peer_of_another_math_is_inaccurate_where_it_says_so_and_keeps_to_its_bound(self):
        shape = "gemm:m=3,n=5,k=64"
        names = ["rounded", "rounded-too-far", "rounded-in-secret"]
        rows = self.rows("--shape", shape, "-v", "scalar", "--peers", ",".join(names), status=1,
                         untimed=("FAILED",))
        self.assertEqual([rows[name]["status"] for name in names],
                         ["INACCURATE", "FAILED", "FAILED"])
        for name, words in (("rounded", "computes in bf16 and errs by"),
                            ("rounded-too-far", "beyond the bound of math bf16"),
                            ("rounded-in-secret", "expected")):
            self.assertIn(words, rows[name]["reason"])
        self.assertGreater(float(rows["rounded"]["p50_ns"]), 0)
        self.assertGreater(float(rows["rounded"]["err_value"]), 1)
        self.assertEqual(rows["rounded"]["math"], "fp32")
        self.assertEqual(self.verified("--shape", shape, "-v", "rounded", "--peers", "rounded",
                                       "--math", "bf16"), {"rounded": "PASSED"})

    def test_verify_asks_peers_too_and_seeds_reach_them(self):
        self.assertEqual(
            self.verified("--shape", SMALL, "-v", "scalar", "--peers", "honest,zeros", "--seed",
                          "18446744073709551", status=1),
            {"scalar": "PASSED", "honest": "PASSED", "zeros": "FAILED"})
        self.assertEqual(self.verified("--shape", SMALL, "--shape", "gemm:m=2,n=2,k=2", "-v",
                                       "honest", "--peers", "honest"), {"honest": "PASSED"})

    def test_an_absent_peer_is_noted_with_its_reason(self):
        got, out, err = self.call("bench", "--dry-run", "--shape", SMALL, "--peers",
                                  "absent,honest")
        self.assertEqual(got, 0, err)
        self.assertIn("note: absent variants: absent: no module of that name", err)
        self.assertNotIn("variant=absent", out)
        self.assertIn("variant=honest", out)
        self.refuse(3, ["no module of that name"], "verify", "--shape", SMALL, "-v", "absent",
                    "--peers", "absent")

    def test_names_of_peers_are_checked(self):
        for name, words in {"taken": ["'scalar'", "exists"],
                            "honets": ["nearest is 'honest'"]}.items():
            with self.subTest(name):
                self.refuse(2, ["--peers", name, *words], "bench", "--shape", SMALL, "--peers",
                            name)

    def test_peers_that_cannot_be_started_are_absent_with_the_reason_and_the_rest_is_measured(self):
        expected = {"killed-start": "ended by SIGKILL (out of memory?) when started",
                    "crashes-start": "ended by SIGSEGV when started",
                    "hangs-start": f"no greeting within {TIMEOUT} s", "rubbish": "'hello'",
                    "outdated": "too old", "complaint": "no such luck"}
        peers = ("--timeout", TIMEOUT, "--peers", ",".join(["honest", *expected]))
        got, _, err = self.call("bench", "--shape", SMALL, "-v", "scalar", *QUICK, *peers, "--csv",
                                "rows.csv")
        self.assertEqual(got, 0, err)
        for name, reason in expected.items():
            with self.subTest(name):
                self.assertRegex(err, rf"(?m)^note: absent variants: .*\b{name}: --peers {name}: .*"
                                      + re.escape(reason))
        self.assertEqual(err.count("note: absent"), 1, err)
        with open(self.path("rows.csv"), encoding="utf-8", newline="") as file:
            self.assertEqual({row["variant"]: row["status"] for row in csv.DictReader(file)},
                             {"scalar": "PASSED", "honest": "PASSED"})
        self.refuse(3, ["'complaint'", "no such luck"], "verify", "--shape", SMALL, "-v",
                    "complaint", "--peers", "complaint")
        listing = json.loads(self.call("list", "--json", "--peers", "complaint,honest")[1])
        reasons = {(kernel["name"], variant["name"]): variant.get("reason", "")
                   for kernel in listing["kernels"] for variant in kernel["variants"]}
        self.assertIn("no such luck", reasons["softmax", "complaint"])
        self.assertEqual(reasons["softmax", "honest"], "")

    def test_verify_tells_of_a_dead_peer_and_goes_on(self):
        self.assertEqual(
            self.verified("--shape", SMALL, "-v", "scalar", "--peers", "crashes-open,honest",
                          status=1),
            {"crashes-open": "RUNTIME_ERROR", "honest": "PASSED", "scalar": "PASSED"})

    def test_wrong_arguments_are_told_before_peers_are_prepared(self):
        got, _, err = self.call("bench", "--shape", "softmax:rows=4", "--peers", "honest")
        self.assertEqual(got, 2)
        self.assertNotIn("prepared", err)

    def test_a_library_from_the_peers_stands_in_for_blas(self):
        found = glob.glob("/usr/lib/*/libopenblas.so.0")
        if not found:
            self.skipTest(skip.reason("no OpenBLAS in /usr/lib", "libopenblas-openmp-dev"))
        rows = self.rows("--shape", "gemm:m=8,n=8,k=8", "-v", "scalar", "--peers", "openblas",
                         env={"FAKE_LIBRARY": found[0]})
        self.assertEqual(rows["blas-openblas"]["status"], "PASSED")
        got, out, err = self.call("bench", "--dry-run", "--shape", "gemm:m=8,n=8,k=8", "--peers",
                                  "mkl")
        self.assertEqual(got, 0, err)
        self.assertRegex(err, "(?m)^note: absent variants: .*blas-mkl: ")

    def test_the_script_that_ROOFLANE_PEERS_names_must_exist(self):
        got, _, err = self.call("list", "--peers", "honest", env={"ROOFLANE_PEERS": "/nowhere.py"})
        self.assertEqual(got, 2)
        self.assertIn("/nowhere.py", err)


class Ended(Foreign):
    """Peers that end at some moment of a run: most of the time is spent waiting for hanging
    ones."""

    def ended_rows(self, end, moments, *arguments, shapes=("softmax:rows=4,cols=9",)):
        """The reasons of the rows of peers that ended, by moment. All others' rows must be good."""
        peers = ["honest", *(f"{end}-{moment}" for moment in moments)]
        asked = [word for shape in shapes for word in ("--shape", shape)]
        got, out, err = self.call("bench", *asked, "-v", "scalar", *QUICK, "--launches", "2",
                                  "--max-time", "0.05", "--peers", ",".join(peers), *arguments,
                                  "--csv", "rows.csv")
        self.assertEqual(got, 1, out + err)
        reasons = {}
        with open(self.path("rows.csv"), encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), len(shapes) * (len(peers) + 1))
        for row in rows:
            name, _, moment = row["variant"].partition("-")
            if name in ("scalar", "honest") or moment == "close":
                self.assertEqual(row["status"], "PASSED", row)
                continue
            self.assertEqual(row["status"], "TIMEOUT" if end == "hangs" else "RUNTIME_ERROR", row)
            self.assertEqual(row["p50_ns"], "", row)
            self.assertEqual(reasons.setdefault(moment, row["reason"]), row["reason"])
        return reasons

    # What a reason says of the moment.
    WHEN = {"restart": "started", "open": "asked to plan",
            "output": "asked to run for verification",
            "output2": "asked to run for verification", "calibrate": "asked to run for timing",
            "sample": "asked to run for timing", "sample2": "asked to run for timing"}

    def test_a_peer_that_is_killed_or_crashes_loses_its_own_rows_only(self):
        for end, signal in {"killed": "SIGKILL (out of memory?)", "crashes": "SIGSEGV"}.items():
            with self.subTest(end):
                reasons = self.ended_rows(end, [*self.WHEN, "close"],
                                          shapes=("softmax:rows=4,cols=9", "softmax:rows=3,cols=5"))
                self.assertEqual(reasons, {
                    moment: f"the worker was ended by {signal} when {words}"
                    for moment, words in self.WHEN.items()})

    def test_a_peer_that_hangs_is_ended_and_loses_its_own_rows_only(self):
        moments = ["restart", "open", "output2", "sample"]
        reasons = self.ended_rows("hangs", [*moments, "close"], "--timeout", TIMEOUT)
        self.assertEqual(reasons, {moment: f"no answer within {TIMEOUT} s when {self.WHEN[moment]}"
                                   for moment in moments})


if __name__ == "__main__":
    ROOFLANE, PLUGINS, FAKE_PEERS = (os.path.abspath(path) for path in sys.argv[1:4])
    skip.main(sys.argv[:1] + sys.argv[4:])

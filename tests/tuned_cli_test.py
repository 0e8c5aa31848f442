#!/usr/bin/env python3
"""Files of tuned schedules as a user meets them: sources, notes, errors, the column and `doctor`.

tuned_cli_test.py ROOFLANE ROOFLANE_WITH_FAKES. Tunings are told apart by what rows say of them.
"""
import csv
import io
import json
import os
import re

from command_line import CommandLine, floats, main, npy

SHAPE = "layernorm:rows=8,cols=64"
QUICK = ["--threads", "1", "--min-time", "0.0001", "--max-time", "0.05", "--launches", "1",
         "--ceilings-time", "0.5"]  # or what comes near the roof may seem to be above it


class Tuned(CommandLine):
    """GEMM at the CPU's best target: `path=4` at 64, which the variant would not choose there."""

    @classmethod
    def setUpClass(cls):
        cls.told = None

    def setUp(self):
        super().setUp()
        if Tuned.told is None:
            Tuned.told = json.loads(self.succeed("doctor", "--json"))
        self.isa = next(target["name"] for target in self.told["isa_targets"] if target["here"])
        self.machine = self.told["tuned"]["machine"]

    def entry(self, size=64, tuning="path=4", **fields):
        return {"kernel": "gemm", "variant": "hwy", "shape": f"gemm:m={size},n={size},k={size}",
                "math": "fp32", "threads": 1, "isa": self.isa, "device": "", "tuning": tuning,
                "default": "path=3", "ratio": {"value": 0.9, "low": 0.8, "high": 1.0},
                "exact": False, "build": "abc", "time": "2026-01-31T12:00:00Z"} | fields

    def file(self, name, *entries, key=None):
        machine = self.machine if key is None else {"key": key}
        self.write(name, json.dumps({"rooflane_tuned": 1, "machine": machine,
                                     "entries": entries}).encode())
        return self.path(name)

    def cases(self, *arguments, size=64, env=None, unset=False):
        """The cases of verify, as text."""
        words = ["verify", "-v", "hwy", "--threads", "1", "--shape",
                 f"gemm:m={size},n={size},k={size}", *arguments]
        if unset:
            out = self.succeed("-u", "ROOFLANE_TUNED", self.rooflane, *words, env=env,
                               program="/usr/bin/env")
        else:
            out = self.succeed(*words, env=env)
        return out.splitlines()

    def is_tuned(self, *arguments, **how):
        case, = self.cases(*arguments, **how)
        self.assertEqual("tuning=path=4" in case, "tuning_source=store" in case, case)
        return "tuning_source=store" in case

    def test_an_option_comes_before_the_variable_and_that_before_the_store(self):
        file = self.file("t.json", self.entry())
        other = self.file("other.json", self.entry(1000))
        self.assertFalse(self.is_tuned())
        self.assertTrue(self.is_tuned("--tuned", file))
        self.assertTrue(self.is_tuned("--tuned", file, env={"ROOFLANE_TUNED": other}))
        self.assertTrue(self.is_tuned(env={"ROOFLANE_TUNED": file}))
        self.assertFalse(self.is_tuned("--tuned", "none", env={"ROOFLANE_TUNED": file}))
        for nothing in ["", "none"]:
            self.assertFalse(self.is_tuned(env={"ROOFLANE_TUNED": nothing}))
        cache = {"XDG_CACHE_HOME": self.folder.name}
        self.assertFalse(self.is_tuned(env=cache, unset=True))
        os.mkdir(self.path("rooflane"))
        store = os.path.join("rooflane", os.path.basename(self.told["tuned"]["store"]))
        self.file(store, self.entry())
        self.assertTrue(self.is_tuned(env=cache, unset=True))
        self.assertFalse(self.is_tuned("--tuned", "none", env=cache, unset=True))
        # A store that is broken, or of another machine, is as none.
        self.file(store, self.entry(), key="another")
        self.assertFalse(self.is_tuned(env=cache, unset=True))
        self.write(store, b"{")
        self.assertFalse(self.is_tuned(env=cache, unset=True))

    def test_exact_before_nearest_before_the_model_and_exact_entries_at_their_own_shape_only(self):
        near = self.entry(64, "path=4,kc=16")
        file = self.file("t.json", near, self.entry(100, "path=4,kc=32", exact=True))
        def kc(size):
            case, = self.cases("--tuned", file, size=size)
            found = re.search(r"\bkc=(\d+).*tuning_source=store", case)
            return int(found[1]) if found else None
        self.assertEqual([kc(size) for size in (31, 32, 64, 99, 100, 101, 128, 129)],
                         [None, 16, 16, 16, 32, 16, 16, None])

    def test_a_file_of_another_machine_is_used_with_a_note_that_names_both(self):
        file = self.file("t.json", self.entry(), key="a toaster")
        for arguments, env in ([["--tuned", file], {}], [[], {"ROOFLANE_TUNED": file}]):
            status, out, err = self.call("verify", "-v", "hwy", "--threads", "1", "--shape",
                                         "gemm:m=64,n=64,k=64", *arguments, env=env)
            self.assertEqual(status, 0, err)
            self.assertIn("tuning_source=store", out)
            notes = [line for line in err.splitlines() if line.startswith("note: ")]
            self.assertEqual(len(notes), 1, err)
            self.assertIn("a toaster", notes[0])
            self.assertIn(self.machine["key"], notes[0])

    def test_a_broken_file_is_refused_by_name_and_place(self):
        good = self.entry()
        broken = {
            "no JSON": b"{", "rooflane_tuned": b"{}",
            "1 expected, not 2": b'{"rooflane_tuned":2}',
            "entry 1: field tuning is missing": {k: v for k, v in good.items() if k != "tuning"},
            "entry 1: threads": {**good, "threads": -1},
            "entry 1: exact": {**good, "exact": "yes"},
            "entry 1: shape": {**good, "shape": "gemm:m=1"},
            "a problem of gemm expected": {**good, "shape": SHAPE},
            "entry 1: tuning": {**good, "tuning": "fast"},
            "entry 1: ratio: field low is missing": {**good, "ratio": {"value": 1}},
        }
        for words, content in broken.items():
            with self.subTest(words):
                if isinstance(content, dict):
                    self.file("t.json", content)
                else:
                    self.write("t.json", content)
                for verb in ("verify", "bench"):
                    self.refuse(2, ["--tuned", "t.json", words], verb, "--tuned", "t.json", "-v",
                                "hwy", "--shape", SHAPE)
                self.refuse(2, ["ROOFLANE_TUNED", "t.json", words], "verify", "-v", "hwy",
                            "--shape", SHAPE, env={"ROOFLANE_TUNED": "t.json"})
        self.refuse(2, ["--tuned", "none.json", "no such file"], "verify", "--tuned", "none.json",
                    "--shape", SHAPE)

    def rows(self, *arguments, env=None):
        out = self.succeed("bench", *QUICK, *arguments, env=env)
        return list(csv.DictReader(io.StringIO(out)))

    def test_the_last_column_says_where_the_tuning_came_from(self):
        file = self.file("t.json", self.entry())
        shapes = ["--shape", "gemm:m=64,n=64,k=64", "--shape", SHAPE, "-v", "hwy,scalar"]
        rows = self.rows(*shapes, env={"ROOFLANE_TUNED": file})
        self.assertIn("tuning_source", rows[0])
        found = {(row["kernel"], row["variant"]): row["tuning_source"] for row in rows}
        self.assertEqual(len(rows), len(found))
        self.assertEqual(found["gemm", "hwy"], "store")
        self.assertEqual(found["gemm", "scalar"], "")
        self.assertIn(found["layernorm", "hwy"], ("", "model"))
        given = self.rows(*shapes[:2], "-v", "hwy", "--tuning", "hwy:path=4", "--tuned", "none")
        model = self.rows(*shapes[:2], "-v", "hwy")
        self.assertEqual([row["tuning_source"] for row in given + model], ["given", "model"])
        # A given tuning is used, whatever is stored.
        both = self.rows(*shapes[:2], "-v", "hwy", "--tuning", "hwy:path=3", "--tuned", file)
        self.assertEqual([row["tuning_source"] for row in both], ["given"])

    def test_bench_tuned_measures_both_in_the_same_rounds(self):
        file = self.file("t.json", self.entry())
        out = self.succeed("bench", *QUICK, "--shape", "gemm:m=64,n=64,k=64", "-v", "hwy",
                           "--tuned", file, "--csv", "rows.csv")
        self.assertRegex(out, r"(?m)^hwy tuned +\d")
        self.assertRegex(out, r"(?m)^hwy +\d")
        self.assertRegex(out, r"(?m)^hwy tuned: \d\S*x.* as fast as the variant's own choice")
        # Which of them is faster is the machine's matter.
        verdicts = re.findall(r"\b(WINNER|TIE|UNDECIDED)\b", out)
        self.assertIn(verdicts, (["WINNER"], ["TIE"], ["UNDECIDED"], ["UNDECIDED"] * 2), out)
        rows = list(csv.DictReader(io.StringIO(self.read("rows.csv").decode())))
        self.assertEqual([row["tuning_source"] for row in rows], ["store", "model"])
        samples = list(csv.DictReader(io.StringIO(self.read("rows.csv.samples.csv").decode())))
        rounds = [{s["round"] for s in samples if s["row"] == row} for row in ("0", "1")]
        self.assertEqual(rounds[0], rounds[1])
        self.assertEqual(self.succeed("compare", "rows.csv", "rows.csv").count("hwy tuned"), 1)
        lines = json.loads(self.succeed("roofline", "--json", "rows.csv"))["groups"][0]["lines"]
        self.assertEqual(sorted(line["over_model"] is None for line in lines), [False, True])
        # Names for Google Benchmark's filter tell them apart.
        names = self.succeed("bench", "--shape", "gemm:m=64,n=64,k=64", "-v", "hwy", "--threads",
                             "1", "--tuned", file, "--benchmark_list_tests").split()
        self.assertEqual(["/tuned" in name for name in names], [True, False])
        self.refuse(2, ["--ladder", "--tuned"], "bench", "--ladder", "-v", "hwy", "--tuned", file)

    def test_a_file_that_serves_no_case_is_noted(self):
        file = self.file("t.json", self.entry(1000))
        status, out, err = self.call("bench", "--dry-run", "--shape", "gemm:m=64,n=64,k=64", "-v",
                                     "hwy", "--threads", "1", "--tuned", file)
        self.assertEqual((status, len(out.splitlines())), (0, 1), err)
        self.assertRegex(err, r"(?m)^note: no entry of '\S+t.json' applies to a case of this run$")

    def test_an_entry_whose_tunable_no_longer_exists_is_told_once_and_listed(self):
        file = self.file("t.json", self.entry(), self.entry(65, "path=4,strip=2"))
        status, out, err = self.call("verify", "-v", "hwy", "--threads", "1", "--shape",
                                     "gemm:m=64..65+1,n=64,k=64", "--tuned", file)
        self.assertEqual((status, out.count("tuning_source=store")), (0, 2), err)
        self.assertEqual(err.count("note: "), 1, err)
        self.assertRegex(err, r"note: 1 of 2 entries of '\S+t.json' are not used; the first: "
                              r"gemm:m=65,n=65,k=65 hwy path=4,strip=2: .*'strip'")
        found = json.loads(self.succeed("doctor", "--json", env={"ROOFLANE_TUNED": file}))["tuned"]
        self.assertEqual((found["entries"], len(found["unused"])), (2, 1))
        self.assertRegex(self.succeed("doctor", env={"ROOFLANE_TUNED": file}),
                         r"(?m)^ +not used: gemm:m=65,n=65,k=65 hwy path=4,strip=2: ")

    def test_beside_another_build_both_run_at_their_own_choice(self):
        file = self.file("t.json", self.entry())
        words = ["bench", "--dry-run", "--shape", "gemm:m=64,n=64,k=64", "-v", "hwy", "--threads",
                 "1", "--against", f"old={self.rooflane}"]
        def variants(*arguments, env=None):
            return [(line.split()[1], "tuning_source=store" in line)
                    for line in self.succeed(*words, *arguments, env=env).splitlines()]
        own = [("variant=hwy", False), ("variant=hwy@old", False)]
        self.assertEqual(variants(env={"ROOFLANE_TUNED": file}), own)
        self.assertEqual(variants("--tuned", file), [("variant=hwy", True), *own])

    def test_run_takes_it_and_prints_nothing_extra(self):
        self.write("a.npy", npy("<f4", (64, 64), floats([1.0] * 4096)))
        words = ["run", "gemm", "-v", "hwy", "--threads", "1", "--in", "a=a.npy", "--in",
                 "b=a.npy", "--out", "c=c.npy"]
        tuned = self.file("t.json", self.entry())
        for arguments in [["--tuned", tuned], ["--tuned", "none"], []]:
            status, out, err = self.call(*words, *arguments)
            self.assertEqual((status, out, err), (0, "", ""))
            self.assertEqual(self.read("c.npy")[-4:], floats([64.0]))
        self.refuse(2, ["--tuned", "no such file"], *words, "--tuned", "nowhere")

    def test_doctor_tells_the_file_its_entries_their_age_and_what_is_wrong(self):
        file = self.file("t.json", self.entry(), self.entry(100, time="2026-01-30T12:00:00Z"))
        here = {"ROOFLANE_TUNED": file}
        self.assertRegex(self.succeed("doctor"), r"(?m)^tuned +none used \(ROOFLANE_TUNED")
        self.assertRegex(self.succeed("doctor", env=here),
                         r"(?m)^tuned +2 entries, the last \d+ days ago, \S+/t.json "
                         r"\(ROOFLANE_TUNED\)$")
        found = json.loads(self.succeed("doctor", "--json", env=here))["tuned"]
        self.assertEqual((found["origin"], found["entries"], found["newest"], found["problem"]),
                         ("ROOFLANE_TUNED", 2, "2026-01-31T12:00:00Z", None))
        self.assertEqual(found["unused"], [])
        self.file("t.json", self.entry(threads="2"))
        self.assertRegex(self.succeed("doctor", env=here),
                         r"(?m)^tuned +none, because \S+ cannot be used: entry 1: threads: ")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measuring from Python: python_measuring_test.py BUILD_DIR. Nothing depends on speed."""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
import unittest.mock
from pathlib import Path

import package_environment
import skip

BRIEF = {"threads": 1, "min_time": 0.0001, "max_time": 0.05, "launches": 1, "ceilings_time": 0.1}
SHAPE = "softmax:rows=4,cols=9"
# A user's script: a worker finds its function again.
SCRIPT = """
import numpy, rooflane

@rooflane.variant("softmax")
def my_softmax(x, y):
    numpy.exp(x - x.max(1, keepdims=True), out=y)
    y /= y.sum(1, keepdims=True)

rows = rooflane.bench("softmax:rows=4,cols=9", variant="hwy", threads=1, launches=1,
                      min_time=0.0001, max_time=0.05, ceilings_time=0.1)
print(rows[["variant", "status", "library"]].to_csv(index=False))
"""
# One that is wrong, one that returns its result, one that remembers results, one of a parameter
# that softmax lacks, one that raises; several kernels under one name.
VARIANTS = """
import numpy, rooflane

@rooflane.variant("softmax")
def zeros(x, y):
    y[...] = 0

@rooflane.variant("softmax", "returns")
def returned(x):
    powers = numpy.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)

known = {}

@rooflane.variant("softmax")
def memo(x, y):
    key = x.shape, x[0].tobytes()
    if key not in known:
        known[key] = returned(x)
    y[...] = known[key]

@rooflane.variant("softmax")
def odd(x, y, slope):
    pass

@rooflane.variant("softmax")
def raises(x, y):
    raise ArithmeticError("as it likes")

@rooflane.variant("rmsnorm", "returns")
def norm(x, gamma, eps):
    x = x.astype("float64")
    return (gamma * x / numpy.sqrt((x * x).mean(1, keepdims=True) + eps)).astype("float32")

@rooflane.variant("rmsnorm", "narrow")
def narrow(x, gamma, eps):
    return gamma * x / numpy.sqrt((x * x).mean(1, keepdims=True) + eps)

@rooflane.variant("topk", "returns")
def largest(x, k):
    ids = numpy.argsort(-x, axis=1, kind="stable")[:, :k].astype("int32")
    return numpy.take_along_axis(x, ids, 1), ids
"""


# A program that finds, whatever is asked of it, one schedule, and keeps it as `tune` does.
TUNER = """#!{python}
import json, os
entry = dict(kernel="softmax", variant="hwy", shape="softmax:rows=64,cols=1000", math="fp32",
             threads=1, isa={isa!r}, device="", tuning={tuning!r})
with open(os.environ["ROOFLANE_TUNED"], "w") as file:
    json.dump(dict(rooflane_tuned=1, machine=dict(key="any"), entries=[entry]), file)
print(json.dumps(dict(tuned=[entry])))
"""


def run(*words, **named):
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True,
                          check=False, timeout=300, **named)


class Frames(unittest.TestCase):
    """What the program measured, as frames."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.file = Path(folder.name) / "rows.csv"
        cls.rows = rooflane.bench(SHAPE, csv=cls.file, variant=["hwy", "scalar"], **BRIEF)

    def test_columns_are_the_files(self):
        header = self.file.read_text(encoding="utf-8").splitlines()[0]
        self.assertEqual(list(self.rows.columns), header.split(","))
        self.assertEqual(sorted(self.rows.variant), ["hwy", "scalar"])
        self.assertTrue((self.rows.status == "PASSED").all())
        self.assertEqual(self.rows.p50_ns.dtype, "float64")
        self.assertEqual(str(self.rows.threads.dtype), "Int64")
        self.assertTrue(self.rows.device.isna().all())

    def test_files_that_are_named_stay(self):
        self.assertEqual(self.rows.attrs["csv"], str(self.file))
        self.assertTrue(self.rows.equals(rooflane.read(self.file)))
        self.assertEqual(len(rooflane.roofline(str(self.file))), 2)

    def test_roofline(self):
        judged = rooflane.roofline(self.rows)
        self.assertLessEqual(set(self.rows.columns), set(judged.columns))
        self.assertEqual(judged.run_id[0], self.rows.run_id[0])
        self.assertTrue((judged.over_scalar.dropna() > 0).all())
        self.assertTrue(judged.verdict.notna().any())
        self.assertIsInstance(judged.attrs["classes"], list)

    def test_compare(self):
        compared = rooflane.compare(self.rows, self.rows)
        self.assertEqual(len(compared), 2)
        self.assertLessEqual(set(compared.verdict), {"SAME", "UNSURE"})
        self.assertFalse(compared.attrs["regressed"])
        with self.assertRaisesRegex(ValueError, "attrs"):
            rooflane.compare(self.rows, pandas.DataFrame({"variant": ["hwy"]}))

    def test_wrong_arguments(self):
        with self.assertRaisesRegex(ValueError, "nearest is 'softmax'"):
            rooflane.bench("softmx:rows=4,cols=9")
        with self.assertRaisesRegex(ValueError, "--no-such"):
            rooflane.bench(SHAPE, no_such=1)
        with self.assertRaisesRegex(ValueError, "cannot be read|no such|does not exist"):
            rooflane.roofline("/nowhere.csv")

    def test_machine(self):
        self.assertIn("machine", rooflane.doctor())
        limits = rooflane.ceilings(threads=1, seconds=0.3)
        self.assertTrue((limits["fma"].gflops > 0).all())
        self.assertIn("footprint_bytes", limits["bandwidth"].columns)


class Tuning(unittest.TestCase):
    """What a search kept."""

    def test_plans_of_this_process_use_what_it_found(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        tuner, store = Path(folder.name) / "tuner", Path(folder.name) / "tuned.json"
        store.write_text('{"rooflane_tuned":1,"machine":{"key":"any"},"entries":[]}',
                         encoding="utf-8")
        with unittest.mock.patch.dict(os.environ, ROOFLANE_TUNED=str(store),
                                      ROOFLANE_PROGRAM=str(tuner)):
            rooflane._core.reread_tuned()
            before = self.facts()
            tuning = dict(word.split("=") for word in before["tuning"].split(","))
            tuning["stream"] = str(1 - int(tuning["stream"]))
            found = ",".join("=".join(pair) for pair in tuning.items())
            tuner.write_text(TUNER.format(python=sys.executable, isa=before["isa"], tuning=found),
                             encoding="utf-8")
            tuner.chmod(0o755)
            tuned = rooflane.tune("softmax:rows=64,cols=1000", threads=1)
            self.assertEqual(tuned.tuning[0], found)
            self.assertEqual(self.facts()["tuning"], found)
        rooflane._core.reread_tuned()
        self.assertEqual(self.facts(), before)

    def facts(self):
        return rooflane.plan("softmax", rows=64, cols=1000, threads=1).facts


class UserVariants(unittest.TestCase):
    """Functions beside all others."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_a_script(self):
        script = self.folder / "mine.py"
        script.write_text(SCRIPT, encoding="utf-8")
        done = run(script, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.split()
        self.assertEqual([line.split(",")[:2] for line in done.stdout.strip().splitlines()],
                         [["variant", "status"], ["hwy", "PASSED"], ["my-softmax", "PASSED"]],
                         lines)
        self.assertIn("Python function", done.stdout)

    def in_module(self, text, *lines):
        """What a module's variants make of a program."""
        (self.folder / "variants_of_mine.py").write_text(VARIANTS, encoding="utf-8")
        program = textwrap.dedent(text)
        return run("-c", program, *lines, cwd=self.folder,
                   env={**os.environ, "PYTHONPATH": os.pathsep.join(
                       [str(self.folder), os.environ["PYTHONPATH"]])})

    def test_a_module(self):
        done = self.in_module(f"""
            import rooflane, variants_of_mine
            rows = rooflane.bench("{SHAPE}", "rmsnorm:rows=3,cols=8", "topk:rows=4,cols=9,k=2",
                                  variant="scalar", **{BRIEF!r})
            for row in rows.sort_values(["kernel", "variant"]).itertuples():
                print(row.kernel, row.variant, row.status, row.reason, sep=";")
            """)
        self.assertEqual(done.returncode, 0, done.stderr)
        told = {tuple(line.split(";")[:2]): line.split(";")[2:]
                for line in done.stdout.splitlines()}
        self.assertEqual(told["softmax", "zeros"][0], "FAILED")
        self.assertEqual(told["softmax", "memo"][0], "FAILED", told)
        self.assertTrue(told["softmax", "memo"][1].startswith("replay: "), told)
        for kernel in ("softmax", "rmsnorm", "topk"):
            self.assertEqual(told[kernel, "returns"][0], "PASSED", told)
        self.assertEqual(told["rmsnorm", "narrow"][0], "INACCURATE")
        self.assertTrue(told["rmsnorm", "narrow"][1].startswith("wide inputs: "), told)
        self.assertEqual(told["softmax", "odd"][0], "UNSUPPORTED")
        self.assertIn("slope", told["softmax", "odd"][1])
        self.assertEqual(told["softmax", "raises"][0], "RUNTIME_ERROR")
        self.assertIn("as it likes", told["softmax", "raises"][1])

    def test_without_a_file(self):
        done = run("-c", SCRIPT, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("my-softmax,PASSED", done.stdout)

    def test_names_and_arguments(self):
        with self.assertRaisesRegex(ValueError, "threads 'two'"):
            rooflane.variant("softmax", threads="two")
        with self.assertRaisesRegex(ValueError, "arrays 'list'"):
            rooflane.variant("softmax", arrays="list")
        with self.assertRaisesRegex(ValueError, "allowed are a-z"):
            rooflane.variant("softmax", "My Own")(len)


class CommandLine(unittest.TestCase):
    """python -m rooflane is the program."""

    def test_verbs(self):
        done = run("-m", "rooflane", "list")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("softmax", done.stdout)
        self.assertEqual(run("-m", "rooflane", "lst").returncode, 2)

    def test_a_program_that_is_not_there(self):
        done = run("-m", "rooflane", "list", env={**os.environ, "ROOFLANE_PROGRAM": "/nowhere"})
        self.assertEqual(done.returncode, 3)
        self.assertIn("/nowhere", done.stderr)


if __name__ == "__main__":
    package_environment.enter(Path(sys.argv[1]))
    import pandas
    import rooflane
    import rooflane._core
    skip.main([sys.argv[0], *sys.argv[2:]])

#!/usr/bin/env python3
"""The command line as a user types it, error paths included: cli_test.py ROOFLANE ROOFLANE_WITH_FAKES.

Needs Python's standard library only. Every test runs in an empty folder of its own.
"""
import csv
import io
import json
import os
import platform
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOFLANE, FAKES = "", ""
VERBS = ["list", "doctor", "run", "inputs", "verify", "ceilings", "bench", "roofline", "schema",
         "worker"]
SMALL = "gemm:m=5,n=7,k=3"
CSV_HEADER_START = "schema_version,run_id,test_time,"


def npy(descr, shape, data, order="False", magic=b"\x93NUMPY\x01\x00"):
    header = f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    return magic + struct.pack("<H", len(header)) + header + data


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def read_npy(path):
    """Shape, type and values of a little-endian C-order file."""
    with open(path, "rb") as file:
        content = file.read()
    assert content[:8] == b"\x93NUMPY\x01\x00", content[:8]
    length = struct.unpack("<H", content[8:10])[0]
    header = eval(content[10:10 + length], {"__builtins__": {}})  # a literal that we wrote
    letter, width = {"<f4": ("f", 4), "<f8": ("d", 8)}[header["descr"]]
    data = content[10 + length:]
    return header["shape"], header["descr"], list(struct.unpack(f"<{len(data) // width}{letter}", data))


def matmul(a, b, m, n, k):
    return [sum(a[i * k + p] * b[p * n + j] for p in range(k)) for i in range(m) for j in range(n)]


class CommandLine(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def call(self, *arguments, program=None, env=None, stdin=""):
        result = subprocess.run(
            [program or ROOFLANE, *arguments], cwd=self.folder.name, input=stdin,
            capture_output=True, text=True, timeout=240, env={**os.environ, **(env or {})})
        return result.returncode, result.stdout, result.stderr

    def succeed(self, *arguments, **options):
        status, out, err = self.call(*arguments, **options)
        self.assertEqual(status, 0, f"{arguments}\n{out}\n{err}")
        return out

    def refuse(self, status, words, *arguments, **options):
        """One line on standard error that holds all the words; nothing on standard output."""
        got, out, err = self.call(*arguments, **options)
        context = f"{shlex.join(arguments)}\n{out}\n{err}"
        self.assertEqual(got, status, context)
        self.assertEqual(out, "", context)
        lines = [line for line in err.splitlines() if not line.startswith("note: ")]
        self.assertEqual(len(lines), 1, context)
        self.assertTrue(lines[0].startswith("rooflane: "), context)
        for word in words:
            self.assertIn(word, lines[0], context)

    def gemm_arrays(self):
        self.a = [float(i % 5 - 2) for i in range(12)]
        self.b = [float(i % 7 - 3) for i in range(24)]
        self.write("a.npy", npy("<f4", (3, 4), floats(self.a)))
        self.write("b.npy", npy("<f4", (4, 6), floats(self.b)))


class Help(CommandLine):
    def test_help_and_version_everywhere(self):
        self.assertIn("bench", self.succeed("--help"))
        version = self.succeed("--version")
        self.assertRegex(version, r"^rooflane \d+\.\d+\.\d+\n$")
        for verb in VERBS:
            with self.subTest(verb):
                self.assertIn("Examples:", self.succeed(verb, "--help"))
                self.assertEqual(self.succeed(verb, "--version"), version)

    def test_examples_work_when_pasted(self):
        env = {"PATH": os.path.dirname(os.path.abspath(ROOFLANE)) + ":" + os.environ["PATH"]}
        for verb in VERBS:
            text = self.succeed(verb, "--help").split("Examples:\n")[1]
            with tempfile.TemporaryDirectory() as empty:
                for line in text.strip().splitlines():
                    with self.subTest(line.strip()):
                        result = subprocess.run(
                            line.strip(), shell=True, cwd=empty, capture_output=True, text=True,
                            stdin=subprocess.DEVNULL, timeout=240, env={**os.environ, **env})
                        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_no_verb_and_unknown_verbs_and_flags(self):
        self.refuse(2, ["verb is missing", "bench"])
        self.refuse(2, ["'bnech'", "nearest is 'bench'"], "bnech")
        self.refuse(2, ["'--verson'", "'--version'"], "--verson")
        for verb in VERBS:
            with self.subTest(verb):
                self.refuse(2, ["'--vresion'", "nearest is '--version'"], verb, "--vresion")
        self.refuse(2, ["'--parms'", "'--params'"], "run", "gemm", "--parms", "m=1")
        self.refuse(2, ["--csv", "needs a value"], "bench", "--csv")
        self.refuse(2, ["--csv", "needs a value"], "bench", "--csv=")
        self.refuse(2, ["--csv", "needs a value"], "bench", "--csv", "")
        self.refuse(2, ["--csv", "2 times"], "bench", "--csv", "x", "--csv", "y")
        self.refuse(2, ["'extra'"], "run", "gemm", "extra")


class ListAndDoctor(CommandLine):
    def test_list_names_every_kernel_and_variant(self):
        out = self.succeed("list")
        for kernel in ["gemm", "softmax", "layernorm", "attention"]:
            for variant in ["scalar", "blas", "hwy", "opencl"]:
                self.assertRegex(out, rf"(?m)^{kernel} +{variant} .*(yes|absent: .+)$")

    def test_list_as_json(self):
        document = json.loads(self.succeed("list", "--json"))
        self.assertEqual([k["name"] for k in document["kernels"]],
                         ["gemm", "softmax", "layernorm", "attention"])
        for kernel in document["kernels"]:
            for variant in kernel["variants"]:
                self.assertEqual("reason" in variant, not variant["available"])

    def test_without_an_opencl_device_opencl_is_absent_with_the_reason(self):
        nothing = {"OCL_ICD_VENDORS": self.path("none"), "OPENCL_VENDOR_PATH": self.path("none")}
        if "OpenCL 0" in self.succeed("doctor", env=nothing):
            self.skipTest("this OpenCL loader finds its drivers by other means")
        document = json.loads(self.succeed("list", "--json", env=nothing))
        for kernel in document["kernels"]:
            opencl = [v for v in kernel["variants"] if v["name"] == "opencl"][0]
            self.assertFalse(opencl["available"])
            self.assertIn("OpenCL", opencl["reason"])
        self.refuse(3, ["opencl", "absent"], "verify", "-v", "opencl", "--shape", SMALL, env=nothing)
        if "built without" not in opencl["reason"]:
            self.assertIn("pocl-opencl-icd", self.succeed("doctor", env=nothing))
        # Not named, it is left out, and the run is good.
        status, out, err = self.call("verify", "--shape", SMALL, "--threads", "1", env=nothing)
        self.assertEqual(status, 0, err)
        self.assertNotIn("variant=opencl", out)
        self.assertIn("note: variant opencl is absent", err)

    def test_doctor_names_the_machine(self):
        out = self.succeed("doctor")
        for word in ["CPU", "caches", "ISA targets", "blas", "OpenCL", "slows this machine down"]:
            self.assertIn(word, out)

    def test_the_slug_is_a_folder_name(self):
        slug = self.succeed("doctor", "--slug")
        self.assertRegex(slug, r"\A[a-z0-9]+(-[a-z0-9]+)*\n\Z")


class Run(CommandLine):
    def test_gemm_on_own_arrays(self):
        self.gemm_arrays()
        expected = matmul(self.a, self.b, 3, 6, 4)
        for variant in ["scalar", "blas", "hwy"]:
            with self.subTest(variant):
                self.assertEqual(self.succeed("run", "gemm", "-v", variant, "--in", "a=a.npy",
                                              "--in", "b=b.npy", "--out", "c=c.npy"), "")
                self.assertEqual(read_npy(self.path("c.npy")), ((3, 6), "<f4", expected))

    def test_flags_and_c0_and_the_batch_axis(self):
        self.gemm_arrays()
        self.write("bt.npy", npy("<f4", (1, 6, 4), floats(
            [self.b[p * 6 + j] for j in range(6) for p in range(4)])))
        self.write("a1.npy", npy("<f4", (1, 3, 4), floats(self.a)))
        self.write("c0.npy", npy("<f4", (3, 6), floats([2.0] * 18)))
        self.succeed("run", "gemm", "-v", "hwy", "--params", "trans_b=1,alpha=2,beta=0.5", "--in",
                     "a=a1.npy", "--in", "b=bt.npy", "--in", "c0=c0.npy", "--out", "c=c.npy")
        shape, _, values = read_npy(self.path("c.npy"))
        self.assertEqual(shape, (1, 3, 6))
        self.assertEqual(values, [2 * x + 1 for x in matmul(self.a, self.b, 3, 6, 4)])

    def test_float64_float16_and_fortran_order(self):
        self.gemm_arrays()
        expected = matmul(self.a, self.b, 3, 6, 4)
        columns = [self.a[i * 4 + p] for p in range(4) for i in range(3)]
        arrays = {"float64": npy("<f8", (3, 4), struct.pack("<12d", *self.a)),
                  "float16": npy("<f2", (3, 4), struct.pack("<12e", *self.a)),
                  "fortran": npy("<f4", (3, 4), floats(columns), order="True")}
        for name, content in arrays.items():
            with self.subTest(name):
                self.write("x.npy", content)
                status, _, err = self.call("run", "gemm", "-v", "scalar", "--in", "a=x.npy", "--in",
                                           "b=b.npy", "--out", "c=c.npy")
                self.assertEqual(status, 0, err)
                self.assertEqual(name != "fortran", f"note: --in a: {name}" in err, err)
                self.assertEqual(read_npy(self.path("c.npy"))[2], expected)

    def test_leading_axes_are_rows(self):
        self.write("x.npy", npy("<f4", (2, 3, 4), floats([0.0] * 24)))
        self.succeed("run", "softmax", "-v", "hwy", "--in", "x=x.npy", "--out", "y=y.npy")
        self.assertEqual(read_npy(self.path("y.npy")), ((2, 3, 4), "<f4", [0.25] * 24))
        self.write("x.npy", npy("<f4", (4,), floats([0.0] * 4)))
        self.succeed("run", "softmax", "-v", "scalar", "--in", "x=x.npy", "--out", "y=y.npy")
        self.assertEqual(read_npy(self.path("y.npy"))[0], (4,))

    def test_bad_arrays_are_refused_and_the_output_stays_as_it_was(self):
        self.gemm_arrays()
        good = self.read("a.npy")
        data = floats(self.a)
        bad = {
            "missing": None,
            "truncated": good[:-5],
            "ends inside its header": good[:20],
            "no .npy file": b"hello, I am no array",
            "version 9.0": b"\x93NUMPY\x09\x00" + good[8:],
            "big-endian": npy(">f4", (3, 4), data),
            "complex": npy("<c8", (3, 4), data * 2),
            "Python objects": npy("|O", (3, 4), data),
            "integer": npy("<i4", (3, 4), data),
            "lies": npy("<f4", (3, 3), data),
            "larger than any array": npy("<f4", (1 << 62, 1 << 62), data),
            "negative": npy("<f4", (-3, -4), data),
        }
        self.write("c.npy", b"precious")
        for word, content in bad.items():
            with self.subTest(word):
                if content is not None:
                    self.write("bad.npy", content)
                name = "none.npy" if content is None else "bad.npy"
                words = ["--in a", name] + ([word] if content is not None else ["No such file"])
                self.refuse(2, words, "run", "gemm", "-v", "scalar", "--in", f"a={name}", "--in",
                            "b=b.npy", "--out", "c=c.npy")
                self.assertEqual(self.read("c.npy"), b"precious")

    def test_shapes_that_disagree_name_both_arrays_and_axes(self):
        self.gemm_arrays()
        self.write("b.npy", npy("<f4", (5, 6), floats([0.0] * 30)))
        common = ["run", "gemm", "-v", "scalar", "--in", "a=a.npy", "--in", "b=b.npy", "--out",
                  "c=c.npy"]
        self.refuse(2, ["k", "axis 1 of a [3,4]", "axis 0 of b [5,6]"], *common)
        self.write("b.npy", npy("<f4", (4, 6), floats(self.b)))
        self.refuse(2, ["m is 9", "axis 0 of a [3,4]"], *common, "--params", "m=9")
        self.write("b.npy", npy("<f4", (4,), floats([0.0] * 4)))
        self.refuse(2, ["b [4] has 1 axes"], *common)

    def test_names_and_parameters_that_do_not_exist(self):
        self.gemm_arrays()
        inputs = ["--in", "a=a.npy", "--in", "b=b.npy"]
        output = ["--out", "c=c.npy"]
        run = ["run", "gemm", "-v", "scalar"]
        self.refuse(2, ["'gem'", "nearest is 'gemm'"], "run", "gem", "-v", "scalar", *inputs, *output)
        self.refuse(2, ["'scalr'", "nearest is 'scalar'"], "run", "gemm", "-v", "scalr", *inputs,
                    *output)
        self.refuse(2, ["-v", "scalar"], "run", "gemm", *inputs, *output)
        self.refuse(2, ["KERNEL"], "run", *inputs, *output)
        self.refuse(2, ["'alfa'", "'alpha'"], *run, "--params", "alfa=2", *inputs, *output)
        self.refuse(2, ["beta=x"], *run, "--params", "beta=x", *inputs, *output)
        self.refuse(2, ["alpha"], *run, "--params", "alpha", *inputs, *output)
        self.refuse(2, ["c0"], *run, *inputs, "--in", "c0=a.npy", *output)
        self.refuse(2, ["input c0", "missing"], *run, "--params", "beta=1", *inputs, *output)
        self.refuse(2, ["input b", "missing"], *run, "--in", "a=a.npy", *output)
        self.refuse(2, ["'a' twice"], *run, *inputs, "--in", "a=a.npy", *output)
        self.refuse(2, ["NAME=FILE"], *run, "--in", "a.npy", *output)
        self.refuse(2, ["output", "'d'", "'c'"], *run, *inputs, "--out", "d=c.npy")
        self.refuse(2, ["--out is missing"], *run, *inputs)
        self.assertFalse(os.path.exists(self.path("c.npy")))

    def test_an_axis_of_a_size_that_is_not_allowed_is_named(self):
        self.write("x.npy", npy("<f4", (3, 0), b""))
        self.refuse(2, ["axis 1 of x [3,0]", "cols=0"], "run", "softmax", "-v", "scalar", "--in",
                    "x=x.npy", "--out", "y=y.npy")

    def test_openblas_runs_at_the_core_type_that_workers_get(self):
        best = re.search(r"OPENBLAS_CORETYPE=(\S+)", self.succeed("doctor"))
        if not best or platform.machine() != "x86_64":
            self.skipTest("no OpenBLAS with core types")
        self.gemm_arrays()
        status, _, err = self.call(
            "run", "gemm", "-v", "blas", "--in", "a=a.npy", "--in", "b=b.npy", "--out", "c=c d.npy",
            env={"OPENBLAS_CORETYPE": "Nehalem", "OPENBLAS_VERBOSE": "2"})
        self.assertEqual(status, 0, err)
        cores = re.findall(r"(?m)^Core: (\S+)$", err)
        self.assertEqual(cores[-1], best[1], err)
        self.assertEqual(read_npy(self.path("c d.npy"))[2], matmul(self.a, self.b, 3, 6, 4))

    def test_outputs_that_cannot_be_written(self):
        self.gemm_arrays()
        run = ["run", "gemm", "-v", "scalar", "--in", "a=a.npy", "--in", "b=b.npy"]
        self.refuse(2, ["--out c", "none/c.npy"], *run, "--out", "c=none/c.npy")
        self.refuse(2, ["--out c", "it is a folder"], *run, "--out", "c=.")
        self.refuse(2, ["--out c", "/proc/c.npy"], *run, "--out", "c=/proc/c.npy")
        # An input may be the output: it is read before it is replaced.
        self.succeed(*run, "--out", "c=a.npy")
        self.assertEqual(read_npy(self.path("a.npy"))[0], (3, 6))
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["a.npy", "b.npy"])


class Options(CommandLine):
    def test_values_of_common_options(self):
        verify = ["verify", "--shape", SMALL]
        for threads in ["0", "x", "-1", "1.5", "1,,2", "99999999999999999999"]:
            with self.subTest(threads):
                self.refuse(2, ["--threads"], *verify, "--threads", threads)
        self.refuse(3, ["--threads 9999", "CPUs"], *verify, "--threads", "9999")
        self.refuse(2, ["'AVX22'", "nearest is 'AVX2'"], *verify, "--isa", "AVX22")
        self.refuse(2, ["'tf32'", "fp32"], *verify, "--math", "tf32")
        self.refuse(2, ["--seed", "x"], *verify, "--seed", "x")
        self.refuse(2, ["--timeout", "0"], *verify, "--timeout", "0")
        self.refuse(2, ["--timeout", "at most"], *verify, "--timeout", "1e300")
        self.refuse(2, ["--cl-device", "x"], *verify, "--cl-device", "x")
        self.refuse(3, ["--cl-device 99"], *verify, "--cl-device", "99")
        self.refuse(2, ["--tuning", "VARIANT:key=value"], *verify, "--tuning", "mc=96")
        self.refuse(2, ["--tuning", "'hwyy'", "'hwy'"], *verify, "--tuning", "hwyy:mc=96")
        self.refuse(2, ["--tuning", "'zz'"], *verify, "--tuning", "hwy:zz=96")
        self.refuse(2, ["--kernel"], "verify", "-k", "gemm,")
        self.refuse(2, ["'gemn'", "'gemm'"], "verify", "-k", "gemn")

    def test_an_argument_that_is_wrong_beats_one_that_cannot_be_served(self):
        self.refuse(2, ["--threads"], "verify", "--cl-device", "99", "--shape", SMALL, "--threads",
                    "0")
        self.refuse(2, ["--shape"], "verify", "--cl-device", "99", "--shape", "gemm:m=1")
        self.refuse(2, ["--csv"], "bench", "--threads", "9999", "--shape", SMALL, "--csv", "no/x")
        huge = "gemm:m=1000000,n=1000000,k=1000000"
        self.refuse(2, ["'scalr'"], "verify", "--shape", huge, "-v", "scalr")

    def test_shapes(self):
        for shape in ["gemm", "gemm:", "gemm:m=1", "gemm:m=1,n=1,k=x", "gemm:m=1,n=1,k=1,z=1",
                      "gemm:m=1,n=1,k=-1", "gemm:m=1,m=1,n=1,k=1", "gemn:m=1,n=1,k=1",
                      "gemm:m=4..1*2,n=1,k=1", "gemm:m=1..4,n=1,k=1", "softmax:rows=1,cols=0",
                      "gemm:m=99999999999999999999,n=1,k=1",
                      "gemm:m=4503599627370496,n=4503599627370496,k=4503599627370496",
                      "attention:batch=1,heads=3,kv_heads=2,q_len=1,kv_len=1,head_dim=1"]:
            with self.subTest(shape):
                self.refuse(2, ["--shape"], "verify", "--shape", shape)
        self.refuse(3, ["MiB"], "verify", "--shape", "gemm:m=1000000,n=1000000,k=1000000")

    def test_tunings_that_fit_no_device_are_arguments(self):
        if not re.search(r"(?m)^softmax +opencl .* yes", self.succeed("list")):
            self.skipTest("no OpenCL device")
        for kernel, tuning in [("softmax", "v=3"), ("layernorm", "lx=3"), ("gemm", "bk=3"),
                               ("attention", "bk=7,tk=2")]:
            for verb in ["verify", "bench"]:
                with self.subTest(kernel, verb=verb):
                    self.refuse(2, ["--tuning opencl:", tuning.split(",")[0], kernel], verb, "-k",
                                kernel, "-v", "opencl", "--tuning", f"opencl:{tuning}")
        self.write("x.npy", npy("<f4", (3, 4), floats([0.5] * 12)))
        self.refuse(2, ["--tuning opencl:v=3"], "run", "softmax", "-v", "opencl", "--tuning",
                    "opencl:v=3", "--in", "x=x.npy", "--out", "y=y.npy")

    def test_blas_libraries(self):
        self.write("text.so", b"no library")
        verify = ["verify", "-v", "blas", "--shape", SMALL, "--threads", "1"]
        for value in ["text.so", "./text.so", "mine=text.so", "none.so", "mine=/none.so"]:
            with self.subTest(value):
                self.refuse(2, ["--blas"], *verify, "--blas", value)
        self.refuse(2, ["--blas", "a-z"], *verify, "--blas", "Mine=text.so")
        self.refuse(2, ["--blas"], *verify, "--blas", "mine=")

    def test_a_named_blas_library_becomes_a_variant(self):
        for folder in ["openblas-openmp", "openblas-pthread"]:
            library = f"/usr/lib/x86_64-linux-gnu/{folder}/libopenblas.so.0"
            if not os.path.exists(library):
                continue
            out = self.succeed("verify", "-v", "blas-mine", "--blas", f"mine={library}", "--shape",
                               SMALL, "--threads", "1")
            self.assertIn("PASSED", out)
            self.assertIn("variant=blas-mine", out)
            self.assertIn("blas-mine", self.succeed("list", "--blas", f"mine={library}"))
            self.succeed("verify", "-v", "blas", "--blas", library, "--shape", SMALL)


class Inputs(CommandLine):
    def test_inputs_and_reference(self):
        out = self.succeed("inputs", "gemm", "--shape", SMALL, "--seed", "3", "--out", "new/folder")
        self.assertEqual(out.split(), [f"new/folder/{n}.npy" for n in ["a", "b", "c_reference"]])
        shape_a, _, a = read_npy(self.path("new/folder/a.npy"))
        _, _, b = read_npy(self.path("new/folder/b.npy"))
        shape, descr, c = read_npy(self.path("new/folder/c_reference.npy"))
        self.assertEqual((shape_a, shape, descr), ((1, 5, 3), (1, 5, 7), "<f8"))
        for got, expected in zip(c, matmul(a, b, 5, 7, 3)):
            self.assertAlmostEqual(got, expected, places=14)
        self.succeed("run", "gemm", "-v", "hwy", "--in", "a=new/folder/a.npy", "--in",
                     "b=new/folder/b.npy", "--out", "c=c.npy")
        for got, expected in zip(read_npy(self.path("c.npy"))[2], c):
            self.assertAlmostEqual(got, expected, places=5)

    def test_bad_requests(self):
        self.refuse(2, ["KERNEL"], "inputs", "--shape", SMALL, "--out", "x")
        self.refuse(2, ["--shape"], "inputs", "gemm", "--out", "x")
        self.refuse(2, ["--shape"], "inputs", "softmax", "--shape", SMALL, "--out", "x")
        self.refuse(2, ["--shape", "ranges"], "inputs", "gemm", "--shape", "gemm:m=1..2+1,n=1,k=1",
                    "--out", "x")
        self.refuse(2, ["--out"], "inputs", "gemm", "--shape", SMALL)
        self.refuse(2, ["--seed"], "inputs", "gemm", "--shape", SMALL, "--seed", "-", "--out", "x")
        self.write("file", b"")
        self.refuse(2, ["--out 'file'"], "inputs", "gemm", "--shape", SMALL, "--out", "file")
        self.refuse(3, ["MiB", "held 3 times"], "inputs", "gemm", "--shape", "gemm:m=1000000,n=1000000,k=1000",
                    "--out", "x")
        self.assertEqual(os.listdir(self.folder.name), ["file"])


class Verify(CommandLine):
    def test_one_line_per_case(self):
        out = self.succeed("verify", "--shape", SMALL, "--shape", "softmax:rows=3,cols=1..3+1", "-v",
                           "scalar,hwy", "--threads", "1")
        lines = out.splitlines()
        self.assertEqual(len(lines), 8)
        for line in lines:
            self.assertRegex(line, r"^PASSED +(gemm|softmax):\S+ variant=(scalar|hwy)"
                                   r".*  error_over_bound=[0-9.e+-]+$")

    def test_a_preset_from_a_file(self):
        self.write("mine.txt", b"# my shapes\nsoftmax:rows=2,cols=3  # small\n\ngemm:m=1,n=1,k=1\n")
        out = self.succeed("verify", "--preset", "mine.txt", "-v", "scalar")
        self.assertEqual(len(out.splitlines()), 2)
        self.write("bad.txt", b"softmax:rows=2,cols=3\nsoftmax:rows=2\n")
        self.refuse(2, ["bad.txt: line 2", "cols"], "verify", "--preset", "bad.txt")
        self.refuse(2, ["'edg'", "nearest is 'edge'"], "verify", "--preset", "edg")

    def test_cheats_and_crashes_fail_with_a_command_that_repeats_them(self):
        expected = {"fake-zeros": "FAILED", "fake-swapped": "FAILED", "fake-input-changer": "FAILED",
                    "fake-crash": "RUNTIME_ERROR", "fake-exit": "RUNTIME_ERROR"}
        for variant, status in expected.items():
            with self.subTest(variant):
                got, out, err = self.call("verify", "-v", variant + ",scalar", "--shape", SMALL,
                                          "--threads", "1", program=FAKES)
                if variant == "fake-crash" and got == 0:
                    continue  # it lives until its second run
                self.assertEqual(got, 1, out + err)
                self.assertRegex(out, rf"(?m)^{status} +{SMALL} variant={variant}")
                self.assertRegex(out, r"(?m)^PASSED +\S+ variant=scalar")
                self.assertIn(f"rooflane verify -v {variant} --shape {SMALL} --seed 1", err)

    def test_nothing_is_left_behind_when_it_is_killed(self):
        os.mkdir(self.path("tmp"))
        with subprocess.Popen([FAKES, "verify", "-v", "fake-hang", "--shape", SMALL],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env={**os.environ, "TMPDIR": self.path("tmp")}) as process:
            time.sleep(1)  # its worker hangs by now
            self.assertIsNone(process.poll())
            process.kill()
        self.assertEqual(os.listdir(self.path("tmp")), [])

    def test_a_hang_is_a_timeout(self):
        got, out, err = self.call("verify", "-v", "fake-hang", "--shape", SMALL, "--timeout", "1",
                                  "--threads", "1", program=FAKES)
        self.assertEqual(got, 1, out + err)
        self.assertTrue(out.startswith("TIMEOUT"), out)
        self.gemm_arrays()
        self.refuse(1, ["TIMEOUT", "fake-hang"], "run", "gemm", "-v", "fake-hang", "--timeout",
                    "0.5", "--in", "a=a.npy", "--in", "b=b.npy", "--out", "c=c.npy", program=FAKES)
        self.assertFalse(os.path.exists(self.path("c.npy")))

    def test_a_named_variant_that_refuses_everything_is_status_3(self):
        got, out, _ = self.call("verify", "-v", "fake-unsupported,scalar", "--shape", SMALL,
                                "--threads", "1", program=FAKES)
        self.assertEqual(got, 3)
        self.assertRegex(out, r"(?m)^UNSUPPORTED .*never in the mood")


class Bench(CommandLine):
    QUICK = ["--min-time", "0.001", "--threads", "1"]

    def test_rows_go_to_standard_output(self):
        out = self.succeed("bench", "--shape", SMALL, "-v", "scalar", *self.QUICK)
        self.assertTrue(out.startswith(CSV_HEADER_START), out)
        rows = list(csv.DictReader(io.StringIO(out)))
        self.assertEqual([(r["kernel"], r["variant"], r["status"]) for r in rows],
                         [("gemm", "scalar", "PASSED")])

    def test_files_and_summary(self):
        self.write("rows.csv", b"old\n")
        out = self.succeed("bench", "--shape", SMALL, "-v", "scalar,hwy", *self.QUICK, "--csv",
                           "rows.csv", "--json", "rows.json")
        self.assertIn("vs scalar", out)
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
        summary = self.succeed("roofline", "rows.csv")
        self.assertEqual(summary, out)
        self.assertIn("| variant |", self.succeed("roofline", "--markdown", "rows.csv"))

    def test_what_slows_the_machine_down_is_noted_once_and_kept(self):
        passive = {"OMP_WAIT_POLICY": "passive"}
        status, _, err = self.call("bench", "--shape", SMALL, "-v", "scalar", *self.QUICK, "--json",
                                   "rows.json", env=passive)
        self.assertEqual(status, 0, err)
        self.assertEqual(err.count("unset OMP_WAIT_POLICY"), 1, err)
        slowdowns = json.loads(self.read("rows.json"))["context"]["slowdowns"]
        self.assertIn("unset OMP_WAIT_POLICY", [slowdown["mend"] for slowdown in slowdowns])
        for nothing_measured in ["--dry-run", "--benchmark_list_tests"]:
            _, _, err = self.call("bench", "--shape", SMALL, "-v", "scalar", nothing_measured,
                                  env=passive)
            self.assertNotIn("OMP_WAIT_POLICY", err)

    def test_cold_rows_say_so(self):
        for cache in ["cold", "warm"]:
            out = self.succeed("bench", "--shape", "softmax:rows=64,cols=512", "-v", "scalar,hwy",
                               "--cache", cache, *self.QUICK)
            rows = list(csv.DictReader(io.StringIO(out)))
            self.assertEqual({(row["cache"], row["status"]) for row in rows}, {(cache, "PASSED")})
            for row in rows:
                if cache == "cold":
                    self.assertEqual(row["runs_per_sample"], "1")
                self.assertGreater(float(row["model_ns"]), 0)

    def test_bad_arguments_leave_the_csv_as_it_was(self):
        self.write("rows.csv", b"old\n")
        csv_file = ["--csv", "rows.csv"]
        self.refuse(2, ["--shape"], "bench", "--shape", "gemm:m=1", *csv_file)
        self.refuse(2, ["--json"], "bench", "--shape", SMALL, "--json", "none/x.json", *csv_file)
        for same in ["./rows.csv", "rows.csv.samples.csv"]:
            self.refuse(2, ["--json", "--csv"], "bench", "--shape", SMALL, "--json", same, *csv_file)
        self.refuse(2, ["--benchmark_filtr", "--benchmark_filter"], "bench", "--shape", SMALL,
                    "--benchmark_filtr=x", *csv_file)
        self.refuse(2, ["--benchmark_filter", "matches no case"], "bench", "--shape", SMALL,
                    "--benchmark_filter=nothing", *csv_file)
        self.refuse(2, ["--cache", "'warm'"], "bench", "--shape", SMALL, "--cache", "wram", *csv_file)
        self.refuse(2, ["--timer"], "bench", "--shape", SMALL, "--timer", "x", *csv_file)
        self.refuse(2, ["--min-time"], "bench", "--shape", SMALL, "--min-time", "-1", *csv_file)
        self.refuse(2, ["--min-time"], "bench", "--shape", SMALL, "--min-time", "nan", *csv_file)
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
                                  *self.QUICK, program=FAKES)
        self.assertEqual(got, 1, err)
        rows = {r["variant"]: r for r in csv.DictReader(io.StringIO(out))}
        self.assertEqual(rows["scalar"]["status"], "PASSED")
        self.assertEqual(rows["fake-zeros"]["status"], "FAILED")
        self.assertEqual(rows["fake-zeros"]["p50_ns"], "")
        self.assertEqual(rows["fake-crash"]["status"], "RUNTIME_ERROR")

    def test_roofline_takes_a_pattern_that_also_names_samples_files(self):
        rows = self.path("pattern.csv")
        self.succeed("bench", "--shape", SMALL, "-v", "scalar", "--min-time", "0.001", "--csv", rows)
        alone = self.succeed("roofline", rows)
        self.assertIn("scalar", alone)
        self.assertEqual(self.succeed("roofline", rows, rows + ".samples.csv"), alone)
        self.refuse(2, ["samples.csv", "no CSV of rows"], "roofline", rows + ".samples.csv")

    def test_roofline_refuses_what_is_no_csv_of_rows(self):
        self.refuse(2, ["FILE"], "roofline")
        self.refuse(2, ["none.csv"], "roofline", "none.csv")
        self.write("x.csv", b"a,b\n1,2\n")
        self.refuse(2, ["x.csv", "schema_version"], "roofline", "x.csv")
        self.write("x.csv", b"schema_version,kernel,variant,shape,status\n1,gemm,hwy,m=1,PASSD\n")
        self.refuse(2, ["x.csv", "PASSD"], "roofline", "x.csv")
        self.write("x.csv", b"")
        self.refuse(2, ["x.csv", "empty"], "roofline", "x.csv")


class Streams(CommandLine):
    def test_a_full_disk_behind_standard_output_is_an_error(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([ROOFLANE, "list"], stdout=full, stderr=subprocess.PIPE, text=True,
                                    timeout=60)
        self.assertEqual(result.returncode, 2)
        self.assertIn("standard output", result.stderr)

    def test_no_colour_outside_a_terminal(self):
        self.assertNotIn("\033", self.succeed("verify", "--shape", SMALL, "-v", "scalar"))

    def test_the_worker_speaks_its_protocol(self):
        requests = json.dumps({"op": "open", "case": f"{SMALL} variant=scalar"}) + "\n"
        lines = self.succeed("worker", stdin=requests).splitlines()
        self.assertEqual(json.loads(lines[0])["rooflane_worker"], 1)
        self.assertTrue(json.loads(lines[1])["ok"])


if __name__ == "__main__":
    ROOFLANE, FAKES = (os.path.abspath(path) for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)

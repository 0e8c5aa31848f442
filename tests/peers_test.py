#!/usr/bin/env python3
"""The Python peers as workers: peers_test.py ROOFLANE PEERS.PY [NAME...].

Drives `peers.py --serve` over protocol 1 and compares what it computes with the references that
`rooflane inputs` writes. Standard library only; the NumPy peer lives in the environment that
peers.py makes. Exits with 77 (skipped) where PyPI cannot be reached. NAMEs are other peers to put
through the same shapes, by hand.
"""
import array
import copy
import csv
import functools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import unittest

import skip

ROOFLANE, PEERS = "", ""
NAMES = ["numpy"]

SHAPES = [
    "gemm:m=1,n=1,k=1", "gemm:m=17,n=31,k=13", "gemm:m=64,n=48,k=129", "gemm:m=1,n=257,k=64",
    "gemm:m=5,n=7,k=9,trans_a=1", "gemm:m=5,n=7,k=9,trans_b=1",
    "gemm:m=33,n=7,k=19,trans_a=1,trans_b=1", "gemm:m=5,n=7,k=9,alpha=0.5,beta=2",
    "gemm:m=5,n=7,k=9,alpha=-2.5", "gemm:m=5,n=7,k=9,alpha=0,beta=3", "gemm:m=5,n=7,k=9,alpha=0",
    "gemm:m=5,n=7,k=0", "gemm:m=5,n=7,k=0,beta=2", "gemm:m=0,n=7,k=9", "gemm:m=5,n=0,k=9",
    "gemm:m=5,n=7,k=9,batch=3", "gemm:m=5,n=7,k=9,batch=0",
    "gemm:m=50,n=70,k=90,prepack=1,beta=1", "gemm:m=5,n=7,k=9,batch=2,trans_b=1,prepack=1",
    "gemm:m=5,n=7,k=9,batch=3,trans_a=1,trans_b=1,alpha=3,beta=0.5",
    "softmax:rows=1,cols=1", "softmax:rows=7,cols=1000", "softmax:rows=300,cols=513",
    "softmax:rows=2,cols=70000", "softmax:rows=0,cols=5",
    "layernorm:rows=1,cols=2", "layernorm:rows=7,cols=1000", "layernorm:rows=300,cols=513",
    "layernorm:rows=2,cols=70000", "layernorm:rows=0,cols=5", "layernorm:rows=9,cols=65,eps=0.5",
    "attention:batch=1,heads=1,q_len=1,kv_len=1,head_dim=1",
    "attention:batch=2,heads=3,q_len=17,kv_len=33,head_dim=16",
    "attention:batch=2,heads=6,kv_heads=2,q_len=9,kv_len=12,head_dim=8",
    "attention:batch=2,heads=6,kv_heads=2,q_len=9,kv_len=9,head_dim=8,causal=1",
    "attention:batch=1,heads=4,kv_heads=2,q_len=5,kv_len=12,head_dim=8,causal=1",
    "attention:batch=1,heads=4,kv_heads=2,q_len=12,kv_len=5,head_dim=8,causal=1",  # 7 rows see none
    "attention:batch=2,heads=8,kv_heads=2,q_len=1,kv_len=40,head_dim=8,causal=1",
    "attention:batch=1,heads=2,q_len=700,kv_len=700,head_dim=8,causal=1",
    "attention:batch=1,heads=2,q_len=3,kv_len=0,head_dim=8",
    "attention:batch=1,heads=2,q_len=0,kv_len=3,head_dim=8",
    "attention:batch=0,heads=2,q_len=4,kv_len=3,head_dim=8",
    "attention:batch=1,heads=2,q_len=4,kv_len=6,head_dim=8,scale=0.3",
    "attention:batch=2,heads=4,kv_heads=2,q_len=9,kv_len=9,head_dim=8,causal=1,v_dim=5",
    "attention:batch=2,heads=4,kv_heads=2,q_len=9,kv_len=12,head_dim=8,mask=1",
    "attention:batch=1,heads=2,q_len=9,kv_len=9,head_dim=8,causal=1,mask=1",
    "attention:batch=1,heads=2,q_len=30,kv_len=37,head_dim=8,causal=1,window=7",
    "attention:batch=1,heads=4,kv_heads=2,q_len=5,kv_len=37,head_dim=8,window=7,mask=1",
    "attention:batch=1,heads=2,q_len=5,kv_len=7,head_dim=8,softcap=3",
    "attention:batch=2,heads=2,q_len=5,kv_len=7,head_dim=8,lengths=1",
    "embed:n=17,vocab=40,cols=13", "embed:n=0,vocab=3,cols=5",
    "segment_sum:edges=70,cols=13,segments=20", "segment_sum:edges=70,cols=3,segments=90,sorted=1",
    "segment_sum:edges=0,cols=3,segments=4",
    "segment_softmax:edges=70,cols=13,segments=20",
    "segment_softmax:edges=70,cols=4,segments=90,sorted=1",
    "topk:rows=3,cols=100", "topk:rows=3,cols=100,k=7",
    "im2patch:batch=2,height=6,width=9,patch=3",
    "rmsnorm:rows=1,cols=2", "rmsnorm:rows=300,cols=513,eps=0.5", "rmsnorm:rows=2,cols=70000",
    "rmsnorm:rows=0,cols=5",
    "add:rows=1,cols=1", "add:rows=7,cols=1000", "add:rows=300,cols=513,broadcast=1",
    "add:rows=0,cols=5",
    *(f"activation:rows=7,cols=1000,kind={kind},gate={gate}" for gate in (0, 1)
      for kind in ("relu", "gelu", "gelu_tanh", "silu", "tanh")),
    "activation:rows=300,cols=513,kind=silu", "activation:rows=0,cols=5,kind=tanh",
]

# A process that fills inputs as peers do: a line of JSON for each problem, answered by the folder
# that they are in.
FILLER = """
import json
import sys
sys.path.insert(0, sys.argv[1])
from peer_workers.peer import aligned_array
from peer_workers.problem import fill_inputs, problem_of
for line in sys.stdin:
    told, folder, seed, distribution = json.loads(line)
    problem = problem_of(told)
    arrays = {t.name: aligned_array(t.shape, t.dtype) for t in problem.tensors}
    fill_inputs(problem, seed, arrays, 2, distribution)
    for tensor in problem.tensors[:-1]:
        arrays[tensor.name].tofile(f"{folder}/{tensor.name}.bin")
    print(folder, flush=True)
"""


def npy(path):
    """The values of a .npy file of version 1 in C order; of 16-bit floats their bits."""
    with open(path, "rb") as file:
        content = file.read()
    length = int.from_bytes(content[8:10], "little")
    descr = content[10:10 + length].split(b"'")[3]
    letter = {b"<f8": "d", b"<f4": "f", b"<f2": "H", b"<V2": "H", b"<i4": "i", b"|i1": "b",
              b"|u1": "B"}[descr]
    return array.array(letter, content[10 + length:])


@functools.cache
def resolved(shape):
    """The problem of a shape with every parameter and tensor, as workers are told it."""
    told = subprocess.run([ROOFLANE, "list", "--json", "--shape", shape], check=True,
                          stdout=subprocess.PIPE).stdout
    problem, = json.loads(told)["problems"]
    return problem


class Worker:
    """A worker process of protocol 1."""

    def __init__(self, command, **environment):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env={**os.environ, **environment})
        self.greeting = json.loads(self.process.stdout.readline())

    def open(self, shape, **fields):
        """Opens a shape as the benchmark does, with `fields` in place of the usual ones."""
        request = {"variant": self.greeting["name"], "math": "fp32", "threads": 1, "cache": "warm",
                   "timer": "steady", "seed": 1, "problem": resolved(shape)}
        return self.ask("open", **{**request, **fields})

    def ask(self, op, **fields):
        self.process.stdin.write(json.dumps({"op": op, **fields}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        """Exit status after the end of input, and what it still printed."""
        if self.process.stdout.closed:
            return None
        self.process.stdin.close()
        rest = self.process.stdout.read()
        self.process.stdout.close()
        return self.process.wait(60), rest


def serve(name, **environment):
    return Worker([sys.executable, PEERS, "--serve", name], **environment)


class Peers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def serve(self, name, **environment):
        worker = serve(name, **environment)
        self.addCleanup(worker.end)
        return worker

    def inputs(self, shape, seed, *more):
        """The folder with a problem's inputs and reference."""
        folder = os.path.join(self.folder.name, "inputs")
        subprocess.run([ROOFLANE, "inputs", shape.split(":")[0], "--shape", shape, "--seed",
                        str(seed), "--out", folder, *more], check=True,
                       stdout=subprocess.DEVNULL)
        return folder

    def python_of(self, name):
        """The interpreter that has a peer's packages."""
        code = (f"import sys; sys.path.insert(0, {os.path.dirname(PEERS)!r})\n"
                "from peer_workers import environments\n"
                f"print(environments.interpreter({name!r}))")
        return subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE,
                              text=True).stdout.strip()

    def output(self, worker, lengths, letters="f"):
        """The outputs' values, one behind the other; of so many elements and such types."""
        path = os.path.join(self.folder.name, "output")
        with open(path, "wb") as file:
            file.truncate(4 * sum(lengths))
        answer = worker.ask("output", path=path, output_bytes=4 * sum(lengths))
        self.assertTrue(answer["ok"], answer)
        with open(path, "rb") as file:
            content = file.read()
        self.assertEqual(len(content), 4 * sum(lengths))
        values = []
        for length, letter in zip(lengths, letters, strict=True):
            values += array.array(letter, content[:4 * length])
            content = content[4 * length:]
        return values

    def test_every_shape_agrees_with_the_reference(self):
        for name in NAMES:
            worker = self.serve(name)
            have = {v["kernel"] for v in worker.greeting["variants"] if "absent" not in v}
            self.assertTrue(have, worker.greeting)
            for shape in SHAPES:
                kernel = shape.split(":")[0]
                if name != "numpy" and kernel not in have:
                    continue
                with self.subTest(peer=name, shape=shape):
                    threads = 0 if name in ("torch-cuda", "triton") else 2
                    opened = worker.open(shape, threads=threads, seed=7)
                    if opened.get("status") == "UNSUPPORTED":
                        options = re.search(
                            "prepack|v_dim|window|mask|softcap|lengths|kind=gelu,", shape)
                        self.assertTrue(name != "numpy" or options, opened)
                        print(f"{name} {shape}: {opened['reason']}", file=sys.stderr)
                        continue
                    self.assertTrue(opened["ok"], opened)
                    self.assertGreaterEqual(opened["plan_ns"], 0)
                    folder = self.inputs(shape, 7)
                    outputs = [t for t in resolved(shape)["tensors"] if t["role"] == "output"]
                    each = [npy(os.path.join(folder, f"{t['name']}_reference.npy"))
                            for t in outputs]
                    letters = ["i" if t["dtype"] == "int32" else "f" for t in outputs]
                    expected = [value for values in each for value in values]
                    # A hundredth of the error of inputs rounded to TF32.
                    allowed = 1e-5 * max([1, *map(abs, expected)])
                    for round_ in range(2):
                        got = self.output(worker, [len(values) for values in each], letters)
                        worst = max((abs(x - y) for x, y in zip(got, expected)), default=0)
                        self.assertFalse(any(map(math.isnan, got)), f"NaN in round {round_}")
                        self.assertLessEqual(worst, allowed)

    def test_inputs_are_those_of_the_seed_bit_for_bit(self):
        python = self.python_of("numpy")
        filler = subprocess.Popen([python, "-c", FILLER, os.path.dirname(PEERS)], text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(filler.wait)
        self.addCleanup(filler.stdout.close)
        self.addCleanup(filler.stdin.close)

        def fill(shape, folder, seed, distribution=None):
            filler.stdin.write(json.dumps([resolved(shape), folder, seed, distribution]) + "\n")
            filler.stdin.flush()
            self.assertEqual(filler.stdout.readline().rstrip("\n"), folder)

        for shape, names in [("gemm:m=300,n=210,k=170,batch=2,trans_b=1,beta=1", "a b c0"),
                             ("softmax:rows=9,cols=777", "x"),
                             ("softmax:rows=9,cols=777,type=f16", "x"),
                             ("softmax:rows=9,cols=777,type=bf16", "x"),
                             ("gemm:m=9,n=70,k=96,a_type=u8,b_type=s8,c_type=s32", "a b"),
                             ("gemm:m=9,n=70,k=96,b_type=s8c", "b b_scale"),
                             *((f"gemm:m=1,n=70,k=1504,trans_b=1,b_type={block}", "a b")
                               for block in ("q8_0", "q4_0", "q4_1")),
                             ("layernorm:rows=9,cols=777", "x gamma beta"),
                             ("embed:n=70000,vocab=1000,cols=3", "table ids"),
                             ("attention:batch=2,heads=4,kv_heads=2,q_len=9,kv_len=13,head_dim=8",
                              "q k v")]:
            for seed in (1, 2**63 - 1):
                folder = self.inputs(shape, seed)
                fill(shape, folder, seed)
                for name in names.split():
                    with self.subTest(shape=shape, seed=seed, tensor=name):
                        with open(os.path.join(folder, name + ".bin"), "rb") as file:
                            ours = file.read()
                        self.assertEqual(ours, npy(os.path.join(folder, name + ".npy")).tobytes())

        ranges = {"f32": {"low": -126, "high": 128, "least_normal": -126, "far": 4096.0,
                          "largest": 3.4028234663852886e38},
                  "f16": {"low": -14, "high": 16, "least_normal": -14, "far": 32.0,
                          "largest": 65504.0}}
        for dtype, limits in ranges.items():
            # More than the pieces that are filled at a time, and rows that they cut.
            shape = f"softmax:rows=101,cols=777,type={dtype}"
            for name in ("wide", "cancelling", "constant", "outlier", "ties", "denormals"):
                with self.subTest(shape=shape, distribution=name):
                    folder = self.inputs(shape, 3, "--distribution", name)
                    asked = {"name": name, "ranges": {"x": limits}}
                    fill(shape, folder, 3, asked)
                    with open(os.path.join(folder, "x.bin"), "rb") as file:
                        ours = file.read()
                    self.assertEqual(ours, npy(os.path.join(folder, "x.npy")).tobytes())

    def test_a_cold_sample_is_one_run(self):
        worker = self.serve("numpy")
        self.assertTrue(worker.open("softmax:rows=16,cols=64", cache="cold")["ok"])
        self.assertEqual(worker.ask("calibrate")["runs_per_sample"], 1)
        self.assertTrue(all(ns > 0 for ns in worker.ask("sample", n=2, runs=1)["ns"]))

    def test_parts_of_blocks_are_the_numbers_that_the_reference_multiplies(self):
        code = f"import sys; sys.path.insert(0, {os.path.dirname(PEERS)!r})\n" + """
import numpy as np
from peer_workers.formats import block_parts
folder, kind = sys.argv[1:]
a, b, c = (np.load(f"{folder}/{name}.npy") for name in ("a", "b", "c_reference"))
integers, scale, low = block_parts(b.reshape(b.shape[-2:]), kind)
values = integers * np.repeat(scale, 32, 1).astype(float) + np.repeat(low, 32, 1)
print(np.abs(a.reshape(a.shape[-2:]).astype(float) @ values.T - c).max())
"""
        for kind in ("q8_0", "q4_0", "q4_1"):
            folder = self.inputs(f"gemm:m=3,n=7,k=96,trans_b=1,b_type={kind}", 7)
            done = subprocess.run([self.python_of("numpy"), "-c", code, folder, kind], check=True,
                                  stdout=subprocess.PIPE, text=True)
            self.assertLess(float(done.stdout), 1e-12, kind)

    def test_llama_cpp_s_product_is_asked_for_and_its_fastest_buffer_taken(self):
        code = f"""import sys
sys.path[:0] = [{os.path.dirname(PEERS)!r}, {os.path.dirname(os.path.abspath(__file__))!r}]
import fake_ggml
fake_ggml.check(sys.argv[1:])
"""
        done = subprocess.run([self.python_of("numpy"), "-c", code], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines(), [
            "int8-block vpdpbusd repacked 0.0", "int8-block vpdpbusd where it lies 0.0",
            "refused: llama.cpp: math bf16: it multiplies q4_0 weights in int8-block",
            "refused: llama.cpp: its mul_mat is a·bᵀ of two matrices: batch=1, trans_a=0, "
            "trans_b=1, alpha=1, beta=0",
            "refused: llama.cpp: float32 times int8_per_channel to float32: its mul_mat multiplies "
            "float32, or what b is of float32, float16 and bfloat16, with b and gives float32"])

    def test_samples_are_taken_as_asked(self):
        worker = self.serve("numpy")
        self.assertTrue(worker.open("softmax:rows=16,cols=64")["ok"])
        calibration = worker.ask("calibrate")
        self.assertGreater(calibration["run_ns"], 0)
        self.assertGreater(calibration["runs_per_sample"], 1)
        samples = worker.ask("sample", n=3, runs=calibration["runs_per_sample"])
        self.assertEqual(len(samples["ns"]), 3)
        self.assertTrue(all(ns > 0 for ns in samples["ns"]))
        for name in ("h2d_ns", "kernel_ns", "d2h_ns", "e2e_ns"):
            self.assertEqual(samples[name], [])
        self.assertEqual(worker.ask("close"), {"ok": True})
        self.assertEqual(worker.ask("sample", n=1, runs=1)["status"], "RUNTIME_ERROR")
        self.assertEqual(worker.end(), (0, ""))

    def test_what_cannot_be_served_is_refused_with_a_reason(self):
        worker = self.serve("numpy")
        good = "gemm:m=2,n=2,k=2"
        half = copy.deepcopy(resolved(good))
        half["tensors"][0]["dtype"] = "float16"
        for shape, fields, status, word in [
                (f"{good},prepack=1", {}, "UNSUPPORTED", "prepack"),
                (good, {"math": "bf16"}, "UNSUPPORTED", "fp32"),
                (good, {"timer": "event"}, "UNSUPPORTED", "timer"),
                (good, {"problem": half}, "UNSUPPORTED", "float16 a is not implemented"),
                (good, {"problem": {"kernel": "conv", "parameters": {}, "tensors": []}},
                 "UNSUPPORTED", "conv"),
                (good, {"problem": {"kernel": "gemm"}}, "RUNTIME_ERROR", "parameters")]:
            with self.subTest(shape=shape, **fields):
                answer = worker.open(shape, **fields)
                self.assertEqual((answer["ok"], answer["status"]), (False, status))
                self.assertIn(word, answer["reason"])
        older = worker.ask("open", case=f"{good} variant=numpy")
        self.assertIn("older than this worker", older["reason"])
        huge = worker.open(f"softmax:rows={2**40},cols={2**10}")
        self.assertEqual((huge["status"], huge["reason"]), ("RUNTIME_ERROR", "out of memory"))
        self.assertEqual(worker.ask("dance")["status"], "RUNTIME_ERROR")
        self.assertTrue(worker.open(good)["ok"])
        path = os.path.join(self.folder.name, "short")
        with open(path, "wb"):
            pass
        self.assertIn("16 bytes", worker.ask("output", path=path, output_bytes=8)["reason"])

    def test_verify_and_bench_run_it_like_a_variant_of_ours(self):
        shapes = ["gemm:m=33,n=65,k=17,trans_b=1", "softmax:rows=9,cols=100",
                  "layernorm:rows=9,cols=100",
                  "attention:batch=1,heads=4,kv_heads=2,q_len=7,kv_len=9,head_dim=16,causal=1"]
        words = [word for shape in shapes for word in ("--shape", shape)]
        words += ["--peers", "numpy", "-v", "numpy", "--threads", "1"]
        environment = {**os.environ, "ROOFLANE_PEERS": PEERS}
        done = subprocess.run([ROOFLANE, "verify", *words], env=environment, text=True,
                              stdout=subprocess.PIPE)
        # NumPy's variance overflows, of rows that no ordinary inputs have.
        self.assertEqual((done.returncode, done.stdout.count("PASSED")), (0, 3), done.stdout)
        self.assertRegex(done.stdout, r"(?m)^INACCURATE +layernorm:.*  wide inputs: element ")
        done = subprocess.run([ROOFLANE, "bench", *words, "--min-time", "0.01",
                               "--ceilings-time", "0.1"], env=environment, text=True,
                              stdout=subprocess.PIPE)
        self.assertEqual(done.returncode, 0)
        rows = list(csv.DictReader(done.stdout.splitlines()))
        self.assertEqual([row["kernel"] for row in rows],
                         ["gemm", "softmax", "layernorm", "attention"])
        for row in rows:
            of_ordinary = row["kernel"] == "layernorm"
            self.assertEqual((row["variant"], row["backend"], row["status"]),
                             ("numpy", "python", "INACCURATE" if of_ordinary else "PASSED"))
            self.assertEqual(row["reason"].startswith("wide inputs: "), of_ordinary)
            self.assertRegex(row["library"], r"^NumPy \d")
            self.assertGreater(float(row["p50_ns"]), 0)

    def test_an_absent_peer_greets_with_the_reason(self):
        empty = {"XDG_CACHE_HOME": self.folder.name, "ROOFLANE_PEERS_PYTHON": ""}
        worker = self.serve("numba", **empty)
        variants = worker.greeting["variants"]
        self.assertTrue(variants)
        for variant in variants:
            self.assertIn("--prepare numba", variant["absent"])
        self.assertEqual(worker.open("softmax:rows=1,cols=1")["status"],
                         "UNSUPPORTED")
        # An interpreter without the package; a file that is not a program; packages that do not
        # load.
        bare = self.serve("numpy", ROOFLANE_PEERS_PYTHON=self.bare_python())
        self.assertIn("numpy", bare.greeting["variants"][0]["absent"])
        broken = self.script("broken", "#!/no/such/interpreter\n")
        reason = self.serve("numpy", ROOFLANE_PEERS_PYTHON=broken).greeting["variants"][0]["absent"]
        self.assertIn(f"{broken} cannot be executed", reason)
        for error in ("SyntaxError", "AttributeError", "KeyError", "RuntimeError"):
            self.script("numpy.py", f"raise {error}('does not fit')\n")
            python = self.script("python", f"#!/bin/sh\nPYTHONPATH={self.folder.name}:$PYTHONPATH "
                                           f"exec {sys.executable} \"$@\"\n")
            greeting = self.serve("numpy", ROOFLANE_PEERS_PYTHON=python).greeting
            self.assertRegex(greeting["variants"][0]["absent"], f"{error}: .*does not fit")

    def test_peers_of_a_gpu_are_absent_without_one_and_others_run(self):
        for name in ("torch-cuda", "triton"):
            variants = self.serve(name, ROOFLANE_PEERS_PYTHON="").greeting["variants"]
            if "absent" not in variants[0]:
                self.skipTest("this machine has a GPU")
            self.assertEqual([variant["kernel"] for variant in variants],
                             ["gemm", "softmax", "layernorm", "attention", "add", "activation",
                              "rmsnorm"])
        done = subprocess.run(
            [ROOFLANE, "verify", "-v", "scalar", "--shape", "softmax:rows=2,cols=3", "--threads",
             "1", "--peers", "torch-cuda"], capture_output=True, text=True,
            env={**os.environ, "ROOFLANE_PEERS": PEERS})
        self.assertEqual((done.returncode, done.stdout.count("PASSED")), (0, 1), done.stderr)
        self.assertRegex(done.stderr, "(?m)^note: absent variants: torch-cuda: .*(GPU|CUDA)")

    def test_runs_on_a_gpu_are_timed_between_events_behind_one_another(self):
        code = f"""import sys
sys.path[:0] = [{os.path.dirname(PEERS)!r}, {os.path.dirname(os.path.abspath(__file__))!r}]
import fake_torch
sys.modules["torch"] = fake_torch
from peer_workers import cuda_plan
plan = cuda_plan.CudaPlan.__new__(cuda_plan.CudaPlan)
plan.host_ns = 1e6
plan.call = lambda: fake_torch.work(0.003)
print(plan.kernel_ns(120))
print(*fake_torch.QUEUE)
def refuses():
    raise RuntimeError("no kernel of this kind")
ways = {{"none": refuses, "slow": lambda: fake_torch.work(2), "fast": lambda: fake_torch.work(1)}}
print(cuda_plan.fastest(ways))
try:
    cuda_plan.fastest({{"none": refuses}})
except RuntimeError as error:
    print(error)
"""
        done = subprocess.run([self.python_of("numpy"), "-c", code], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        ns, queue, chosen, failure = done.stdout.splitlines()
        self.assertAlmostEqual(float(ns), 3000, delta=1e-3)  # nothing of the idle loop
        pieces = [f"idle event {'work ' * runs}event" for runs in (50, 50, 20)]
        self.assertEqual(queue, " ".join(pieces))
        self.assertEqual((chosen, failure), ("fast", "no kernel of this kind"))

    def test_an_environment_that_broke_is_told_by_a_run_that_goes_on(self):
        # Killed by the system while it loads: no Python code of ours says why.
        crash = self.script("crash", "#!/bin/sh\nkill -SEGV $$\n")
        for python, reason in ((self.bare_python(), "No module named 'numpy'"),
                               (crash, "ended by SIGSEGV when started")):
            done = subprocess.run(
                [ROOFLANE, "verify", "-v", "scalar", "--shape", "softmax:rows=2,cols=3",
                 "--threads", "1", "--peers", "numpy"], capture_output=True, text=True,
                env={**os.environ, "ROOFLANE_PEERS": PEERS, "ROOFLANE_PEERS_PYTHON": python})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, f"(?m)^note: absent variants: .*numpy: .*{reason}")
            self.assertEqual(done.stdout.count("PASSED"), 1, done.stdout)

    def script(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def bare_python(self):
        folder = os.path.join(self.folder.name, "bare")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        return os.path.join(folder, "bin", "python")

    def test_names_are_checked(self):
        def peers(*arguments):
            return subprocess.run([sys.executable, PEERS, *arguments], capture_output=True,
                                  text=True)

        self.assertIn("torch-compile\n", peers("--names").stdout)
        for arguments in (["--prepare", "nunpy"], ["--serve", "mkl"], ["--serve", "numpy,torch"]):
            done = peers(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn("numpy", done.stderr)
        again = peers("--prepare", "numpy")
        self.assertEqual((again.returncode, again.stderr), (0, ""))  # nothing was left to do


def prepare():
    """Makes the environments; exits with 77 when PyPI cannot be reached."""
    done = subprocess.run([sys.executable, PEERS, "--prepare", *NAMES], stderr=subprocess.PIPE,
                          text=True)
    sys.stderr.write(done.stderr)
    if "connection broken" in done.stderr:
        skip.everything("PyPI cannot be reached", f"from PyPI: {' '.join(NAMES)}")
    if done.returncode != 0:
        sys.exit(1)


if __name__ == "__main__":
    ROOFLANE, PEERS = map(os.path.abspath, sys.argv[1:3])
    NAMES = sys.argv[3:] or NAMES
    prepare()
    skip.main(sys.argv[:1], verbosity=1)

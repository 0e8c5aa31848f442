"""Whatever is imported before or after rooflane, results are the same bit for bit and every library
keeps its number of threads; a forked child computes too. NumPy always; torch and scikit-learn where
an environment with them stands already.

usage: python_imports_test.py BUILD_FOLDER
"""
from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import skip  # noqa: E402
from python_environment import ready  # noqa: E402

BUILD = Path(sys.argv[1])

# Imports in the order given, computes, and prints what came of it.
PROGRAM = """
import hashlib, importlib, json, os, sys
modules = [importlib.import_module(name) for name in sys.argv[1:]]
import numpy, rooflane
random = numpy.random.default_rng(1)
a = random.standard_normal((96, 80), dtype="float32")
b = random.standard_normal((80, 112), dtype="float32")
result = {}
def digest(array):
    return hashlib.sha256(numpy.ascontiguousarray(array).tobytes()).hexdigest()
def compute(threads):
    c, y = rooflane.gemm(a, b, threads=threads), rooflane.softmax(a, threads=threads)
    return digest(c), digest(y)
result["rooflane"] = [compute(threads) for threads in (1, 2, 2)]
child = os.fork()
if child == 0:
    os._exit(0 if [list(compute(2))] == [list(x) for x in result["rooflane"][1:2]] else 1)
result["forked child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
if "torch" in sys.argv:
    import torch
    result["torch"] = digest((torch.from_numpy(a) @ torch.from_numpy(b)).numpy())
    result["torch's threads"] = torch.get_num_threads()
if "sklearn" in sys.argv:
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_info
    fitted = KMeans(4, n_init=2, random_state=1).fit(a)
    result["sklearn"] = digest(fitted.labels_)
    result["its pools"] = sorted((p["prefix"], p["num_threads"]) for p in threadpool_info())
result["rooflane at the end"] = compute(2)
print(json.dumps(result))
"""


class Imports(unittest.TestCase):
    def outcome(self, python: Path, order: tuple[str, ...]) -> dict[str, object]:
        """What the program says of one order."""
        environment = {**os.environ, "PYTHONPATH": str(BUILD / "python"), "OMP_NUM_THREADS": "2"}
        done = subprocess.run([str(python), "-c", PROGRAM, *order], env=environment,
                              capture_output=True, text=True, check=False, timeout=600)
        self.assertEqual(done.returncode, 0, f"{order}: {done.stderr}")
        outcome: dict[str, object] = json.loads(done.stdout)
        return outcome

    def try_orders(self, environment: str, *others: str) -> None:
        python = ready(environment)  # another test may be making it now
        if python is None:
            self.skipTest(skip.reason(f"no environment '{environment}' with {', '.join(others)}"))
        outcomes = {order: self.outcome(python, order)
                    for order in itertools.permutations(("rooflane", *others))}
        first = next(iter(outcomes.values()))
        self.assertEqual(first["forked child"], 0)
        self.assertEqual(first["rooflane"][1], first["rooflane"][2])
        self.assertEqual(first["rooflane"][1], first["rooflane at the end"])
        for order, outcome in outcomes.items():
            self.assertEqual(outcome, first, order)

    def test_numpy(self) -> None:
        self.try_orders("bindings", "numpy")

    def test_torch(self) -> None:
        self.try_orders("torch", "torch")

    def test_scikit_learn(self) -> None:
        self.try_orders("kernel-tuner-tests", "sklearn")


if __name__ == "__main__":
    if not list((BUILD / "python" / "rooflane").glob("_core*.so")):
        skip.everything("built without the Python package", "from PyPI: nanobind, and python3-dev")
    skip.main(sys.argv[:1])

#!/usr/bin/env python3
"""Checks GEMM in every number format on files that NumPy and gguf (PyPI) wrote and decoded.

  check_formats.py [--seed N] [--rooflane PROGRAM] [VARIANT...]   default: scalar hwy avx512 amx

gguf quantizes random weights and dequantizes them again. `rooflane run` multiplies the stored
blocks, and its result is compared with NumPy's product of the dequantized numbers in double
precision. Prints the largest error of each format as a share of the bound of float32 sums,
(8 + sqrt k) u |a||b|; for int8-dynamic, which rounds a in the run, as a share of a twentieth of the
largest result. Creates its own environment. Exit status: 0 all within bounds, 1 not, 3 the
environment is not available.
"""
from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from python_environment import Unavailable, with_packages
from rooflane_json import PROGRAM

PACKAGES = ["gguf==0.19.0", "ml_dtypes==0.5.4", "numpy==2.4.6"]
# The formats of b with float32 a, and the maths that multiply them.
FORMATS = {"f16": ["fp32"], "bf16": ["fp32"], "s8c": ["fp32", "int8-dynamic"],
           "q8_0": ["fp32", "int8-dynamic"], "q4_0": ["fp32", "int8-dynamic"],
           "q4_1": ["fp32", "int8-dynamic"]}
SIZES = [(1, 64, 4096), (5, 33, 96), (70, 50, 320)]  # m, n, k
DYNAMIC_ERROR = 0.05


def interpreter() -> Path:
    """The environment's interpreter, made now if need be. Raises Unavailable."""
    return with_packages("formats", PACKAGES)


def weights(name: str, values: Any) -> tuple[dict[str, Any], Any]:
    """b's tensors as `rooflane run` takes them, and the numbers they stand for."""
    import gguf
    import ml_dtypes
    import numpy as np
    if name == "s8c":
        scale = np.abs(values).max(axis=1) / np.float32(127)
        stored = np.rint(values / scale[:, None]).astype(np.int8)
        return ({"b": stored, "b_scale": scale.astype(np.float32)},
                stored * scale[:, None].astype(np.float64))
    if name == "f16":
        stored = values.astype(np.float16)
        return {"b": stored}, stored.astype(np.float64)
    if name == "bf16":
        stored = values.astype(ml_dtypes.bfloat16)
        return {"b": stored}, stored.astype(np.float64)
    kind = getattr(gguf.GGMLQuantizationType, name.upper())
    blocks = gguf.quants.quantize(values, kind)
    return {"b": blocks}, gguf.quants.dequantize(blocks, kind).astype(np.float64)


def product(program: str, variant: str, parameters: str, math: str,
            tensors: dict[str, Any]) -> Any:
    """What `rooflane run` makes of these; text where the variant does not take them."""
    import numpy as np
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, values in tensors.items():
            np.save(Path(folder) / f"{name}.npy", values)
            files += ["--in", f"{name}={folder}/{name}.npy"]
        done = subprocess.run(
            [program, "run", "gemm", "-v", variant, "--math", math, "--params", parameters, *files,
             "--out", f"c={folder}/c.npy"], capture_output=True, text=True, check=False)
        unavailable = 3
        if done.returncode == unavailable:
            return done.stderr.strip().splitlines()[-1].partition("is ")[2]
        if done.returncode != 0:
            raise SystemExit(f"{variant} {parameters}: {done.stderr.strip()}")
        return np.load(Path(folder) / "c.npy").astype(np.float64)


def check(program: str, variant: str, name: str, math: str, generator: Any) -> bool:
    """Prints a line for a format of b in a math; whether all results were right."""
    import numpy as np
    worst = 0.0
    for m, n, k in SIZES:
        a = generator.standard_normal((m, k), dtype=np.float32)
        tensors, decoded = weights(name, generator.standard_normal((n, k), dtype=np.float32))
        result = product(program, variant, f"trans_b=1,b_type={name}", math, {"a": a, **tensors})
        if isinstance(result, str):
            print(f"{variant:8} {name:5} {math:13} not taken: {result}")
            return True
        right = a.astype(np.float64) @ decoded.T
        error = np.abs(result - right)
        if math == "fp32":
            bound = (8 + k**0.5) * 2.0**-24 * (np.abs(a).astype(np.float64) @ np.abs(decoded).T)
            worst = max(worst, float((error / bound).max()))
        else:
            worst = max(worst, float(error.max() / np.abs(right).max()) / DYNAMIC_ERROR)
    verdict = "right" if worst <= 1 else "WRONG"
    print(f"{variant:8} {name:5} {math:13} {verdict}, {worst:.3f} of the allowed error")
    return worst <= 1


def check_integers(program: str, variant: str, name: str, generator: Any) -> bool:
    """The same for 8-bit integers; their sums are exact."""
    import numpy as np
    least, most = (0, 255) if name == "u8" else (-128, 127)
    for m, n, k in SIZES:
        a = generator.integers(least, most, (m, k), endpoint=True)
        b = generator.integers(-128, 127, (n, k), endpoint=True)
        tensors = {"a": a.astype(np.uint8 if name == "u8" else np.int8), "b": b.astype(np.int8)}
        result = product(program, variant, f"trans_b=1,a_type={name},b_type=s8,c_type=s32", "int8",
                         tensors)
        if isinstance(result, str):
            print(f"{variant:8} {name:5} {'int8':13} not taken: {result}")
            return True
        if not np.array_equal(result, a @ b.T):
            print(f"{variant:8} {name:5} {'int8':13} WRONG")
            return False
    print(f"{variant:8} {name:5} {'int8':13} right, exactly")
    return True


def check_all(program: str, variants: list[str], seed: int) -> int:
    """The script's status."""
    import numpy as np
    generator = np.random.default_rng(seed)
    good = True
    for variant in variants:
        for name, maths in FORMATS.items():
            for math in maths:
                good &= check(program, variant, name, math, generator)
        for name in ["s8", "u8"]:
            good &= check_integers(program, variant, name, generator)
    return 0 if good else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks GEMM on weights that gguf quantized.")
    parser.add_argument("variants", nargs="*", metavar="VARIANT",
                        default=["scalar", "hwy", "avx512", "amx"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooflane", default=str(PROGRAM))
    arguments = parser.parse_args()
    try:
        python = interpreter()
    except Unavailable as reason:
        print(f"check_formats: {reason}", file=sys.stderr)
        return 3
    if Path(sys.prefix) != python.parent.parent:
        return subprocess.run([str(python), *sys.argv], check=False).returncode
    return check_all(arguments.rooflane, arguments.variants, arguments.seed)


if __name__ == "__main__":
    sys.exit(main())

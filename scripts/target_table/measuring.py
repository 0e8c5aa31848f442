"""Runs `rooflane bench` over the classes: which peers are here, then one run per family of kernels.

What the rows say is read in results.py. A family's problems, classes and thread counts share one
run: its ceilings are measured once, and its Python workers start once a launch.
"""
from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from target_table.results import OURS

# Variant -> the argument of --peers that brings it; nothing: it is part of the build.
PEERS = {"blas": None, "blis": None, "onednn": None, "blas-mkl": "mkl", "blas-openblas": "openblas",
         "numpy": "numpy", "numba": "numba", "torch": "torch", "torch-compile": "torch-compile",
         "onnxruntime": "onnxruntime"}

# Family -> its kernels and peers. Left out is what can win nothing there: compiled PyTorch calls
# the same GEMM; softmax and LayerNorm by BLAS calls are an exercise, not a library's kernels, and
# of attention by two GEMMs the fastest BLAS is enough.
FAMILIES = {
    "gemm": (("gemm",), ("blas", "blis", "onednn", "blas-mkl", "blas-openblas", "numpy", "torch",
                         "onnxruntime")),
    "rows": (("softmax", "layernorm"), ("onednn", "numpy", "numba", "torch", "torch-compile",
                                        "onnxruntime")),
    "attention": (("attention",), ("blas", "onednn", "blas-mkl", "numpy", "torch", "torch-compile",
                                   "onnxruntime")),
}
# One small problem of each kernel, to ask which variants are here.
ASK = ("gemm:m=n=k=8", "softmax:rows=2,cols=8", "layernorm:rows=2,cols=8",
       "attention:batch=1,heads=1,q_len=4,kv_len=4,head_dim=8")
# Level -> launches and the seconds for the rounds of a problem in one launch: minutes for all.
EFFORT = {"quick": (2, 0.3), "default": (2, 0.5), "full": (3, 1)}


class BenchFailed(Exception):
    """The benchmark could not run; its own message stands on standard error."""

    def __init__(self, text: str, status: int):
        super().__init__(text)
        self.status = status


def absence(variant: str, peer: str | None, text: str) -> str:
    """Why a variant is not here, from what the benchmark wrote on standard error."""
    patterns = [rf"^peers: {re.escape(peer or variant)} is absent: (.*)$",
                rf"^note: variant {re.escape(variant)} is absent: (.*)$", r"^rooflane: (.*)$"]
    for pattern in patterns:
        if found := re.search(pattern, text, re.MULTILINE):
            return found[1]
    return "not in this build"


def find_peers(rooflane: Path) -> tuple[set[str], dict[str, str]]:
    """The variants that are here, and of each peer that is not the reason. Each peer is asked for
    by itself: one whose worker breaks down must not take others along. Makes their environments
    where they are not there yet."""
    here: set[str] = set()
    absent: dict[str, str] = {}
    by_peer: dict[str | None, list[str]] = {}
    for variant, peer in PEERS.items():
        by_peer.setdefault(peer, []).append(variant)
    for peer, variants in by_peer.items():
        command = [str(rooflane), "bench", "--dry-run", "--threads", "1"]
        for shape in ASK:
            command += ["--shape", shape]
        if peer:
            command += ["--peers", peer]
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL)
        if done.returncode != 0 and peer is None:
            sys.stderr.write(done.stderr)
            raise BenchFailed("no dry run succeeds", done.returncode)
        found = set(re.findall(r" variant=(\S+)", done.stdout))
        here |= found & {OURS, *variants}
        for variant in variants:
            if variant not in found:
                absent[variant] = absence(variant, peer, done.stderr)
                print(f"peer {variant} is absent: {absent[variant]}", file=sys.stderr)
    return here, absent


def measure(rooflane: Path, shapes: dict[str, list[str]], folder: Path, prefix: Path, level: str,
            threads: str | None, launches: str | None, resume: bool
            ) -> tuple[list[Path], dict[str, str]]:
    """Measures the classes of `shapes` into PREFIX-FAMILY.csv; those files, and the peers that are
    absent with the reason. `folder` takes one file of shapes per class: the class is the row's
    preset. Raises BenchFailed."""
    rooflane = rooflane.absolute()
    here, absent = find_peers(rooflane)
    files = []
    for family, (kernels, peers) in FAMILIES.items():
        classes = [name for name in shapes if name.split("-")[0] in kernels]
        if not classes:
            continue
        for name in classes:
            (folder / name).write_text("\n".join(shapes[name]) + "\n", encoding="utf-8")
        usable = [variant for variant in peers if variant in here]
        file = Path(f"{prefix}-{family}.csv")
        command = [str(rooflane), "bench", "--csv", str(file), "--preset", ",".join(classes),
                   "-v", ",".join([OURS, *(v for v in usable if PEERS[v] is None)]),
                   "--launches", str(launches or EFFORT[level][0]),
                   "--max-time", str(EFFORT[level][1])]
        if served := [PEERS[variant] for variant in usable if PEERS[variant]]:
            command += ["--peers", ",".join(served)]
        if threads:
            command += ["--threads", threads]
        if resume:
            command.append("--resume")
        print(f"{family}: {', '.join(classes)}", file=sys.stderr, flush=True)
        begin = time.monotonic()
        # Status 1: a row failed. The table says which, and the others count.
        status = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, check=False).returncode
        if status not in (0, 1):
            raise BenchFailed(f"{family}: rooflane bench ended with status {status}", status)
        print(f"{family}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
        files.append(file)
    return files, absent

"""Which models are measured at which sizes, and which swaps are predicted and proven. Standard
library only.
"""
from __future__ import annotations

import csv
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

Cells = dict[str, str]


@dataclass(frozen=True)
class Run:
    model: str
    what_if: str         # swaps, as `rooflane model --what-if` takes them; empty: none
    size: str = ""       # empty: the model's defaults
    seconds: float = 20  # of rounds

    @property
    def name(self) -> str:
        return f"{self.model} {self.size}".strip()


SMALL = "gemm=blas,softmax=scalar,layernorm=scalar"
GELU = "gemm=blas,attention=blas,layernorm=scalar,activation=scalar,add=scalar"
SWIGLU = "gemm=blas,attention=blas,rmsnorm=scalar,rope=scalar,activation=scalar"
# Runs of a quarter of a second and more: fewer swaps, so that rounds are short and many.
RUNS = [
    Run("block", SMALL, "small", 10),
    Run("block", SMALL, "medium", 10),
    Run("block", SMALL, "large", 15),
    Run("block", SMALL, "huge", 30),
    Run("transformer-gelu", GELU, "small", 40),
    Run("transformer-gelu", "gemm=blas,attention=blas", "gpt2", 50),
    Run("transformer-swiglu", SWIGLU, "small", 40),
    Run("transformer-swiglu", "gate_up=blas,down=blas", "llama3-8b", 50),
    Run("gpt2-small", "qkv=blas,up=blas,attention=blas,layernorm=scalar", "", 50),
    Run("bert-base", "up=blas,down=blas,activation=scalar", "", 50),
    Run("vit-b16", "up=blas,down=blas,attention=blas", "", 50),
    Run("gnn", "segment_sum=scalar,segment_softmax=scalar,embed=scalar", "small", 20),
    Run("gnn", "", "large", 20),
    Run("llama", "ffn_up=blas,attention=blas,attn_norm=scalar", "", 50),
]
# Enough to see that everything works.
QUICK_SECONDS = 0.2


@dataclass(frozen=True)
class Limits:
    """Limits of all threads together, as `rooflane ceilings` measured them."""
    read_gb_s: float  # from memory
    gflops: float     # float32 multiply-adds at the best ISA target


@dataclass
class Result:
    run: Run
    rows: list[Cells]
    proofs: list[Cells]
    output: str = field(default="")
    limits: Limits | None = None  # of the rows' threads, where those were measured
    peak_bytes: int = 0           # the process's peak of resident memory


class Failed(Exception):
    """A model that could not be measured; the text is one line."""


def read(path: Path) -> list[Cells]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def limits_of(ceilings: Path, threads: int) -> Limits | None:
    """Beyond the caches is the largest footprint of the curve."""
    known = json.loads(ceilings.read_text(encoding="utf-8"))["ceilings"]
    curves = [curve for curve in known["bandwidth"]
              if curve["threads"] == threads and not curve["device"]]
    peaks = [peak["gflops"] for peak in known["fma"]
             if peak["threads"] == threads and not peak["device"] and peak["math"] == "fp32"]
    if not curves or not peaks:
        return None
    largest = max(curves[0]["points"], key=lambda point: point["footprint_bytes"])
    return Limits(largest["read_gb_s"], max(peaks))


def call(command: list[str]) -> tuple[int, str, str, int]:
    """Status, output, errors and the peak of resident memory."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        return process.returncode, out.read(), errors.read(), usage.ru_maxrss * 1024


def measure(run: Run, program: Path, folder: Path, quick: bool,
            options: Sequence[str]) -> Result:
    """Raises Failed."""
    rows = folder / "rows.csv"
    size = ["--size", "tiny"] if quick else ["--size", run.size] if run.size else []
    seconds = QUICK_SECONDS if quick else run.seconds
    swaps = ["--what-if", run.what_if] if run.what_if else []
    command = [str(program), "model", run.model, *size, *swaps, "--max-time", str(seconds),
               "--csv", str(rows), "--ceilings", str(folder / "ceilings.json"), *options]
    status, output, errors, peak_bytes = call(command)
    if status != 0:
        lines = errors.strip().splitlines() or [f"status {status}"]
        raise Failed(f"{run.name}: {lines[-1]}")
    result = Result(run, read(rows), read(Path(f"{rows}.swaps.csv")), output,
                    peak_bytes=peak_bytes)
    result.limits = limits_of(folder / "ceilings.json", int(result.rows[0]["threads"]))
    return result

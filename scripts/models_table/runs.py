"""Which models are measured at which sizes, and which swaps are predicted and proven. Standard
library only.
"""
from __future__ import annotations

import csv
import subprocess
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


@dataclass
class Result:
    run: Run
    rows: list[Cells]
    proofs: list[Cells]
    output: str = field(default="")


class Failed(Exception):
    """A model that could not be measured; the text is one line."""


def read(path: Path) -> list[Cells]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def measure(run: Run, program: Path, folder: Path, quick: bool,
            options: Sequence[str]) -> Result:
    """Raises Failed."""
    rows = folder / "rows.csv"
    size = ["--size", "tiny"] if quick else ["--size", run.size] if run.size else []
    seconds = QUICK_SECONDS if quick else run.seconds
    swaps = ["--what-if", run.what_if] if run.what_if else []
    command = [str(program), "model", run.model, *size, *swaps, "--max-time", str(seconds),
               "--csv", str(rows), "--ceilings", str(folder / "ceilings.json"), *options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise Failed(f"{run.name}: {lines[-1]}")
    return Result(run, read(rows), read(Path(f"{rows}.swaps.csv")), done.stdout)

"""The command line of scripts/model_shapes.py."""
from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import numpy as np

from rooflane.program import Refused
from rooflane.program import run as run_program

from . import contrib, patterns, rewriting, writing
from .arguments import parser
from .graph import InputError
from .inference import infer
from .mapping import Kernels, Mapped
from .reading import read_model
from .sizes import Sizes


def main(words: list[str], kernels: Kernels, program: Path) -> int:
    """Reads, maps, writes. The exit status."""
    arguments = parser().parse_args(words)
    sizes = Sizes(arguments.batch, arguments.len, dict(arguments.dim), dict(arguments.shape),
                  {name: np.array(values) for name, values in arguments.value})
    try:
        run(arguments.graph, sizes, kernels, program, arguments.out)
    except InputError as error:
        print(f"model_shapes.py: {error}", file=sys.stderr)
        return 2
    return 0


def mapped_graph(path: Path, sizes: Sizes, kernels: Kernels) -> Mapped:
    """The graph of a file, with kernels for its nodes. Raises InputError."""
    graph = infer(read_model(path), sizes)
    contrib.expand(graph)
    rewriting.simplify(graph)
    patterns.fuse(graph, "mask" in kernels.get("attention", ()))
    return Mapped(graph, kernels)


def run(path: Path, sizes: Sizes, kernels: Kernels, program: Path, out: Path | None) -> None:
    """Raises InputError."""
    if out is not None and not out.resolve().parent.is_dir():
        raise InputError(f"--out {out}: no such folder")
    mapped = mapped_graph(path, sizes, kernels)
    coverage = writing.coverage(mapped)
    if not mapped.builder.steps:
        rest = ", ".join(f"{op} ({reason})" for op, reason, _, _ in coverage.rest[:8])
        raise InputError(f"{path}: no node of it is a kernel's: {rest}")
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", path.stem) or "model"
    given = [f"{value.name}={'x'.join(map(str, value.shape or ()))}"
             for value in mapped.graph.values.values() if value.is_input and value.shape]
    comments = [f"From {path.name} by scripts/model_shapes.py; inputs {' '.join(given)}",
                coverage.headline(), *coverage.lines()]
    text = writing.ModelText(name, mapped).text(comments)
    check(program, text)
    if out is None:
        sys.stdout.write(text)
    else:
        replace(out, text)
    print("\n".join([f"{path.name}: {coverage.headline()}", *coverage.lines()]),
          file=sys.stderr if out is None else sys.stdout)


def check(program: Path, text: str) -> None:
    """Has the program read the model: it refuses what is too large. Raises InputError."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.txt"
        file.write_text(text, encoding="utf-8")
        try:
            run_program(program, ["model", file, "--dry-run"])
        except Refused as refused:
            raise InputError(str(refused).replace(f"{file}: ", "the model: ")) from None


def replace(path: Path, text: str) -> None:
    """Writes a file that is there whole or not at all. Raises InputError."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise InputError(f"--out {path}: {error.strerror}") from error

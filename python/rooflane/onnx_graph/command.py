"""The command line of scripts/model_shapes.py."""
from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

import numpy as np

from rooflane.program import Refused
from rooflane.program import run as run_program

from . import contrib, patterns, rewriting, writing
from .graph import InputError
from .inference import infer
from .mapping import Kernels, Mapped
from .reading import read_model
from .sizes import Sizes

MOST_VALUES = 4096  # numbers of one --value


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="model_shapes.py",
        description="Reads an ONNX graph into a model file: the steps that kernels of Rooflane do, "
                    "with a list of what they do not. Only shapes count: weights come from the "
                    "seed.",
        epilog="Without --out the model goes to standard output and the list to standard error; "
               "with it the list goes to standard output.")
    result.add_argument("graph", metavar="FILE.onnx", type=Path)
    result.add_argument("--batch", metavar="N", type=_size,
                        help="first axes of inputs that the file leaves open")
    result.add_argument("--len", metavar="N", type=_size, help="second ones")
    result.add_argument("--dim", metavar="SYMBOL=N", action="append", default=[], type=_named_size,
                        help="a symbol of the file; goes before --batch and --len")
    result.add_argument("--shape", metavar="INPUT=NxN", action="append", default=[],
                        type=_named_shape, help="all axes of an input")
    result.add_argument("--value", metavar="INPUT=N,...", action="append", default=[],
                        type=_named_values, help="the numbers of an input that decides about others"
                                                 " (a sampling rate, a length)")
    result.add_argument("--out", metavar="FILE", type=Path, help="the model file to write")
    result.add_argument("--rooflane", metavar="PROGRAM", type=Path,
                        help="the program whose kernels are used; default: build/rooflane")
    return result


def _size(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no size")
    return int(text)


def _named(text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not equals or not name or not value:
        raise argparse.ArgumentTypeError(f"'{text}': write NAME=...")
    return name, value


def _named_size(text: str) -> tuple[str, int]:
    name, value = _named(text)
    return name, _size(value)


def _named_shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, value = _named(text)
    return name, tuple(_size(part) for part in value.split("x"))


def _named_values(text: str) -> tuple[str, np.ndarray]:
    name, value = _named(text)
    parts = value.split(",")
    if len(parts) > MOST_VALUES:
        raise argparse.ArgumentTypeError(f"{len(parts)} numbers, allowed are {MOST_VALUES}")
    try:
        return name, np.array([float(part) for part in parts])
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{value}' is no list of numbers") from error


def main(words: list[str], kernels: Kernels, program: Path) -> int:
    """Reads, maps, writes. The exit status."""
    arguments = parser().parse_args(words)
    sizes = Sizes(arguments.batch, arguments.len, dict(arguments.dim), dict(arguments.shape),
                  dict(arguments.value))
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

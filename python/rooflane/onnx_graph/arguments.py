"""The command line of scripts/model_shapes.py. Standard library only: its help needs no package."""
from __future__ import annotations

import argparse
import re
from pathlib import Path

MOST_VALUES = 4096  # numbers of one --value


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="model_shapes.py",
        description="Translates an ONNX graph to a model file: steps for operators that have a "
                    "kernel, and a list of the others. Only shapes are read; weights come from "
                    "the seed.",
        epilog="Without --out the model is written to standard output and the list to standard "
               "error; with it the list is written to standard output.")
    result.add_argument("graph", metavar="FILE.onnx", type=Path)
    result.add_argument("--batch", metavar="N", type=_size,
                        help="the first axes of inputs, if the file leaves them open")
    result.add_argument("--len", metavar="N", type=_size, help="the second axes")
    result.add_argument("--dim", metavar="SYMBOL=N", action="append", default=[], type=_named_size,
                        help="a symbol of the file; takes precedence over --batch and --len")
    result.add_argument("--shape", metavar="INPUT=NxN", action="append", default=[],
                        type=_named_shape, help="all axes of an input")
    result.add_argument("--value", metavar="INPUT=N,...", action="append", default=[],
                        type=_named_values, help="the numbers of an input that determines others"
                                                 " (a sampling rate, a length)")
    result.add_argument("--out", metavar="FILE", type=Path, help="the model file to write")
    result.add_argument("--rooflane", metavar="PROGRAM", type=Path,
                        help="the program with the kernels; default: build/rooflane")
    return result


def _size(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a size")
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


def _named_values(text: str) -> tuple[str, list[float]]:
    name, value = _named(text)
    parts = value.split(",")
    if len(parts) > MOST_VALUES:
        raise argparse.ArgumentTypeError(f"{len(parts)} numbers, allowed are {MOST_VALUES}")
    try:
        return name, [float(part) for part in parts]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{value}' is not a list of numbers") from error

#!/usr/bin/env python3
"""NumPy, Numba, PyTorch and ONNX Runtime as peers of `rooflane bench --peers NAME,...`.

Makes the environments they live in and starts the workers; the workers themselves are in
peer_workers/. This file runs under any Python 3.10 or newer with the standard library only.

  peers.py --names              the peers, one a line
  peers.py --prepare NAME...    makes what the peers need, from PyPI; at once when all is there
  peers.py --serve NAME         a worker of protocol 1 (src/measure/worker.hpp) on standard
                                input and output; a peer that cannot be had greets as absent
  peers.py --library NAME       the path of the CBLAS library of mkl or openblas, for --blas

ROOFLANE_PEERS_PYTHON names an interpreter that has the packages already; no environment is made
then. Exit status: 0 good, 2 wrong arguments, 3 something cannot be had here (the reason is told).
"""
from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
sys.path.insert(0, str(SCRIPTS))

from peer_workers import environments  # noqa: E402
from python_environment import Unavailable  # noqa: E402


def names_of(texts: list[str]) -> list[str]:
    """Names from arguments that may hold several, separated by commas; exits with 2 on others."""
    names = [name for text in texts for name in text.split(",") if name]
    for name in names:
        if name not in environments.PEERS:
            print(f"peers: unknown peer '{name}'; valid: {', '.join(environments.PEERS)}",
                  file=sys.stderr)
            sys.exit(2)
    return names


def prepare(names: list[str]) -> int:
    """Makes the environments of all names; reports on standard error which cannot be made."""
    status = 0
    failed: dict[str, str] = {}  # peers that share an environment are not tried twice
    for name in names:
        environment = environments.PEERS[name]
        reason = environments.lacks_gpu(name) or failed.get(environment)
        if reason is None:
            try:
                environments.prepare(name)
            except Unavailable as error:
                reason = failed[environment] = str(error)
        if reason is not None:
            print(f"peers: {name} is absent: {reason}", file=sys.stderr)
            status = 3
    return status


def serve(name: str) -> None:
    """Becomes the worker, in the peer's interpreter. Without one this interpreter serves: it
    greets with the reason."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = str(SCRIPTS)
    # It names the best core type of another build of OpenBLAS than NumPy's.
    environment.pop("OPENBLAS_CORETYPE", None)
    command = ["-m", "peer_workers.serve", name]
    try:
        python = str(environments.interpreter(name))
        environment.update(environments.variables(name))
    except Unavailable as reason:
        python = sys.executable
        command += ["--absent", str(reason)]
    try:
        os.execve(python, [python, *command], environment)
    except OSError as error:
        reason = f"its interpreter {python} cannot be executed: {error.strerror}"
        os.execve(sys.executable, [sys.executable, *command, "--absent", reason], environment)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Creates the environments of Python peers and runs them as workers.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--names", action="store_true", help="print the peers, one per line")
    action.add_argument("--prepare", metavar="NAME", nargs="+", help="create their environments")
    action.add_argument("--serve", metavar="NAME", help="run as a worker: JSON lines")
    action.add_argument("--library", metavar="NAME", choices=environments.LIBRARIES,
                        help="print the path of the library of mkl or openblas")
    arguments = parser.parse_args()
    if arguments.names:
        print("\n".join(environments.PEERS))
        return 0
    if arguments.prepare:
        return prepare(names_of(arguments.prepare))
    if arguments.library:
        try:
            print(environments.library(arguments.library))
        except Unavailable as reason:
            print(f"peers: {arguments.library} is absent: {reason}", file=sys.stderr)
            return 3
        return 0
    names = names_of([arguments.serve])
    if len(names) != 1 or names[0] in environments.LIBRARIES:
        workers = [name for name in environments.PEERS if name not in environments.LIBRARIES]
        print(f"peers: --serve '{arguments.serve}': valid is one of {', '.join(workers)}",
              file=sys.stderr)
        return 2
    serve(names[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())

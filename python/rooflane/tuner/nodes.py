"""The processes of a cluster: tune.py scheduler|worker ARGUMENT...

  tune.py scheduler [--host ADDRESS] [--port N]    on one machine; 127.0.0.1:8786 unless told
  tune.py worker tcp://HOST:PORT                   on every machine that is to measure

Both become Dask's own programs; further arguments are theirs. A worker takes one evaluation at a
time, with the program that ROOFLANE_PROGRAM names. Whoever reaches the scheduler can run anything
on the workers: a network that only you are in, or tls:// with Dask's certificates.
"""
from __future__ import annotations

import os
import sys

PROGRAMS = {"scheduler": "dask_scheduler", "worker": "dask_worker"}
# The machine is for what is measured: no dashboard, and no limit that would pause the worker.
ARGUMENTS = {"scheduler": ["--no-dashboard"],
             "worker": ["--nthreads", "1", "--nworkers", "1", "--resources", "rooflane=1",
                        "--memory-limit", "0", "--no-dashboard"]}


def main(words: list[str]) -> int:
    """Becomes Dask's program."""
    name, *rest = words
    if rest and rest[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    if name == "worker" and not rest:
        print("rooflane: worker tcp://HOST:PORT: of the scheduler", file=sys.stderr)
        return 2
    arguments = list(ARGUMENTS[name])
    if name == "scheduler" and not {word.partition("=")[0] for word in rest} & {"--host",
                                                                              "--interface"}:
        arguments += ["--host", "127.0.0.1"]
    module = f"distributed.cli.{PROGRAMS[name]}"
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments, *rest])

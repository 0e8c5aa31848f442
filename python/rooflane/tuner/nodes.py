"""The processes of a cluster: tune.py scheduler|worker ARGUMENT...

  tune.py scheduler [--host ADDRESS] [--port N]    on one machine; 127.0.0.1:8786 unless told
  tune.py worker tcp://HOST:PORT [--host ADDRESS]  on every machine that is to measure; it listens
                                                   where it reaches the scheduler from, unless told

Both become Dask's own programs; further arguments are theirs. A worker takes one evaluation at a
time, with the program that ROOFLANE_PROGRAM names. Whoever reaches the scheduler can run anything
on the workers: a network that only you are in, or tls:// with Dask's certificates.
"""
from __future__ import annotations

import os
import socket
import sys
import urllib.parse

from rooflane import program
from rooflane.errors import Unavailable
from rooflane.tuner import remote

PROGRAMS = {"scheduler": "dask_scheduler", "worker": "dask_worker"}
# The machine is for what is measured: no limit that would pause the worker.
WORKER = ("--nthreads", "1", "--nworkers", "1", "--memory-limit", "0")


def _own_address(scheduler: str) -> str | None:
    """This machine's address on the way to a scheduler; none where that has no such address."""
    where = urllib.parse.urlsplit(scheduler)
    try:
        found = socket.getaddrinfo(where.hostname, where.port or 1, type=socket.SOCK_DGRAM)
        with socket.socket(found[0][0], socket.SOCK_DGRAM) as route:
            route.connect(found[0][4])  # sends nothing
            return str(route.getsockname()[0])
    except (OSError, ValueError):
        return None


def main(words: list[str]) -> int:
    """Becomes Dask's program."""
    name, *rest = words
    if rest and rest[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    if name == "worker" and not rest:
        print("rooflane: worker tcp://HOST:PORT: of the scheduler", file=sys.stderr)
        return 2
    arguments = ["--no-dashboard"]
    if name == "worker":
        try:
            arguments += [*WORKER, "--resources", f"{remote.RESOURCE}{remote.kind()}=1"]
        except (program.Refused, Unavailable) as refused:
            print(f"rooflane: {refused}", file=sys.stderr)
            return program.UNAVAILABLE
    given = {word.partition("=")[0] for word in rest}
    if "--dashboard-address" not in given:
        # Without a dashboard, too, Dask answers HTTP there, on all addresses by default.
        arguments += ["--dashboard-address", "127.0.0.1:0"]
    if not given & {"--host", "--interface"}:
        # Dask listens on all addresses unless it is told one.
        address = "127.0.0.1" if name == "scheduler" else _own_address(rest[0])
        arguments += ["--host", address] if address else []
    # A task that three workers died of is not started on a fourth.
    os.environ.setdefault("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "2")
    module = f"distributed.cli.{PROGRAMS[name]}"
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments, *rest])

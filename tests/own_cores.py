#!/usr/bin/env python3
"""Runs a test on two cores of the machine that at most three others share. What measures takes
the first cores that a process may use: without this, all tests of a large machine would crowd on
its first one. own_cores.py FOLDER_OF_LOCKS COMMAND…
"""
import fcntl
import os
import sys
from pathlib import Path

WIDTH = 2  # cores: what every test is known to run on
SHARING = 4  # tests on them, as test.sh starts two for each core


def take_place(folder: Path, places: int) -> int:
    """A place that no running test has, held until this process ends; any when all are taken."""
    folder.mkdir(exist_ok=True)
    for place in range(places):
        lock = os.open(folder / str(place), os.O_CREAT | os.O_WRONLY, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        os.set_inheritable(lock, True)
        return place
    return os.getpid() % places


def main() -> None:
    folder, command = Path(sys.argv[1]), sys.argv[2:]
    cpus = sorted(os.sched_getaffinity(0))
    slices = len(cpus) // WIDTH
    if slices > 1:
        first = take_place(folder, slices * SHARING) % slices * WIDTH
        os.sched_setaffinity(0, cpus[first:first + WIDTH])
    os.execvp(command[0], command)


main()

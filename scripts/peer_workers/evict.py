"""Empties the caches before a cold run: each CPU reads a memory larger than all of them. This also
evicts a library's packed operands, at unknown addresses, and its scratch memory; our own variants
keep their scratch memory."""
from __future__ import annotations

import glob
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from peer_workers.peer import aligned_array

# Virtual machines report caches of other sizes than they have; reads slow down between these.
LEAST, MOST = 64 << 20, 256 << 20


def largest_cache() -> int:
    """Bytes of the largest cache that Linux reports."""
    largest = 0
    for path in glob.glob("/sys/devices/system/cpu/cpu0/cache/index*/size"):
        with open(path, encoding="ascii") as file:
            text = file.read().strip()
        largest = max(largest, int(text[:-1]) << {"K": 10, "M": 20}[text[-1]])
    return largest


class Evictor:
    """Reads twice the largest cache on each of this process's CPUs."""

    def __init__(self) -> None:
        size = min(max(2 * largest_cache(), LEAST), MOST)
        self.memory = aligned_array((size // 8,), "float32").view(np.float64)
        self.memory.fill(1)
        self.pools = {cpu: ThreadPoolExecutor(1, initializer=os.sched_setaffinity,
                                              initargs=(0, {cpu}))
                      for cpu in os.sched_getaffinity(0)}

    def evict(self) -> None:
        """Returns when all CPUs have read all of it."""
        for work in [pool.submit(self.memory.max) for pool in self.pools.values()]:
            work.result()

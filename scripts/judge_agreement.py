#!/usr/bin/env python3
"""Judges Rooflane's own variant `hwy` beside itself: does the jail change how long a kernel takes?
Usage: judge_agreement.py PREFIX [--rooflane PROGRAM] [--budget SECONDS] [--threads N]
                          [--shape SHAPE]... [--csv FILE]

PREFIX: where Rooflane is installed, below /usr or /opt, which alone the jail sees. Both are timed
in the same rounds; the cost of a call is subtracted from the judged one's. Both plan without the
machine's traits and tuned schedules, which lie in a home that the jail does not see. Prints a line
a problem, and ends with 1 where the 95 % interval of a ratio lies beyond 3 % from 1. --csv adds a
row a problem to FILE; page_tables.py makes docs/judge.md's table from the rows in results/.
"""
from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "tests" / "judged_hwy.c"
ALLOWED = 0.03
ALIKE = {"ROOFLANE_TRAITS": "none", "ROOFLANE_TUNED": "none"}
SHAPES = ("softmax:rows=512,cols=1000", "softmax:rows=64,cols=1000", "add:rows=64,cols=256",
          "gemm:m=256,n=256,k=256", "layernorm:rows=512,cols=768",
          "attention:batch=1,heads=4,q_len=128,kv_len=128,head_dim=64,causal=0",
          "gemm:m=256,n=256,k=256,a_type=bf16,b_type=bf16")


def add_row(path: Path, row: dict[str, str]) -> None:
    """With headings where the file is new."""
    stamped = {**row, "test_time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
               "build_commit": subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True,
                                              cwd=SOURCE.parent, text=True, check=True
                                              ).stdout.strip()}
    new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(stamped), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(stamped)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prefix", type=Path)
    parser.add_argument("--rooflane", default="build/rooflane")
    parser.add_argument("--budget", default="10")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--shape", action="append", help="default: seven of five kernels")
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    library = next(given.prefix.glob("**/librooflane.so.0")).parent
    flags = f"-O2 -I{given.prefix}/include -L{library} -l:librooflane.so.0 -Wl,-rpath,{library}"
    apart = 0
    for shape in given.shape or SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [given.rooflane, "judge", str(SOURCE), "-k", shape.partition(":")[0], "--shape",
                 shape, "--threads", given.threads, "--against", "hwy", "--hidden", "0",
                 "--budget", given.budget, f"--flags={flags}", "--archive", f"{folder}/attempts",
                 "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                env={**os.environ, **ALIKE})
        if done.returncode != 0:
            print(f"{shape}: {(done.stderr or done.stdout).strip()}")
            apart += 1
            continue
        found = json.loads(done.stdout)["shapes"][0]
        peer = found["peers"][0]
        # Its own time over hwy's: above 1, the jail costs something.
        ratio, low, high = (1 / peer[key] for key in ("ratio", "ratio_high", "ratio_low"))
        agrees = low <= 1 + ALLOWED and high >= 1 - ALLOWED
        apart += not agrees
        print(f"{shape}: {ratio:.3f} [{low:.3f}, {high:.3f}] of {peer['p50_us']:.4g} us, "
              f"a call {found['overhead_us']:.2f} us +- {found['overhead_spread_us']:.2f}"
              f"{'' if agrees else '  APART'}", flush=True)
        if given.csv:
            add_row(given.csv, {
                "shape": shape, "threads": given.threads, "ratio": f"{ratio:.4f}",
                "ratio_lo": f"{low:.4f}", "ratio_hi": f"{high:.4f}",
                "bench_us": f"{peer['p50_us']:.5g}", "call_us": f"{found['overhead_us']:.4f}",
                "call_spread_us": f"{found['overhead_spread_us']:.4f}"})
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())

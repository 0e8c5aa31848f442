#!/usr/bin/env python3
"""The program with a judge that believes what a source says of itself, so that searches over
sources and the MCP server can be tested without compilers, jails and clocks. Everything but the
verb `judge` is FAKE_PROGRAM's (rooflane-fake).

A source says `/* fake: verdict=WINNER ratio=0.5 */`; without that it is a LOSER that takes 4 times
as long. `until=PATH` makes the file PATH.judged, then waits for PATH; `refuse=3` ends with that
status, `unseen=FAILED` is the verdict on seeds from 1000 on. FAKE_ARCHIVE is where attempts are
kept, a document a line.
"""
from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

TEMPLATE = """/* The template. */
#include <stdint.h>
void {0}(const float* x, float* y, int64_t rows, int64_t cols) {{ }}
"""
SIGNATURE = "void {0}(const float* x, float* y, int64_t rows, int64_t cols);"
FASTER = {"-funroll-loops": 0.9, "-O2": 1.1}  # what flags make of a ratio


def arguments_of(words: list[str]) -> argparse.Namespace:
    """The options that the callers use; others are wrong."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("-k", "--kernel")
    for option in ("shape", "threads", "against", "hidden", "seed", "budget", "flags", "archive",
                   "template", "signature"):
        parser.add_argument(f"--{option}")
    for option in ("json", "history", "unsafe"):
        parser.add_argument(f"--{option}", action="store_true")
    return parser.parse_args(words)


def document_of(given: argparse.Namespace, text: str, number: int) -> dict[str, Any]:
    """What the text says of itself."""
    told = dict(re.findall(r"(\w+)=(\S+)", (re.search(r"fake: (.*?)\*/", text) or "x")[0]))
    if "refuse" in told:
        print("rooflane: no jail is possible here: no namespaces", file=sys.stderr)
        sys.exit(int(told["refuse"]))
    if "until" in told:
        until = Path(told["until"])
        Path(told["until"] + ".judged").touch()
        while not until.exists() and until.parent.exists():  # a test that ended has no folder
            time.sleep(0.02)
    verdict = told.get("verdict", "LOSER")
    if int(given.seed or 1) >= 1000:
        verdict = told.get("unseen", verdict)
    ratio = float(told.get("ratio", 4))
    for flag, factor in FASTER.items():
        ratio *= factor if flag in (given.flags or "") else 1
    right = verdict in ("WINNER", "TIE", "LOSER", "UNDECIDED")
    shape = given.shape or f"{given.kernel}:rows=4,cols=8"
    # What a source calls its ratio is its time over the peer's.
    peers = [{"variant": name, "p50_us": 10.0, "ratio": 1 / ratio, "ratio_low": 1 / ratio / 1.01,
              "ratio_high": 1 / ratio / 0.99} for name in (given.against or "hwy").split(",")]
    return {
        "schema": "rooflane-judge-1", "schema_version": 1, "kernel": given.kernel,
        "source": {"path": str(given.file), "sha256": hashlib.sha256(text.encode()).hexdigest(),
                   "kind": "function", "flags": given.flags or "-O3 -march=native",
                   "compiler": "cc", "text": text},
        "jail": {"kind": "unsafe" if given.unsafe else "bubblewrap", "has": [], "lacks": []},
        "verdict": verdict, "cheat": None, "reason": f"it says so: {verdict}",
        "first_wrong": None if verdict != "FAILED" else {
            "shape": shape, "seed": 7, "distribution": "wide", "threads": 1, "tensor": "y",
            "index": [0, 3], "got": 0.0, "expected": 0.25, "bound": 1e-6},
        "build": {"ok": verdict != "BUILD", "messages":
                  "softmax.c:3:1: error: expected ';'" if verdict == "BUILD" else "",
                  "not_vectorised": []},
        "seed": int(given.seed or 1), "hidden": [],
        "shapes": [{"shape": shape, "hidden": False, "threads": int(given.threads or 1),
                    "verdict": verdict, "overhead_spread_us": 0.01,
                    "p50_us": 10 * ratio, "low_us": 9.9 * ratio, "high_us": 10.1 * ratio,
                    "overhead_us": 0.4, "roof_us": 5.0, "roof_pct": 50 / ratio, "binds": "memory",
                    "sol": 0.5, "peers": peers}] if right else [],
        "hot_loop": {"function": "softmax", "instructions": ["vmovups (%rdi,%rax), %zmm0"],
                     "width_bits": 512, "spills": 0, "gathers": 0, "calls": 0} if right else None,
        "maps": [], "next": "write wider vectors" if right else "", "attempt": number,
        "archive": os.environ["FAKE_ARCHIVE"]}


def main(words: list[str]) -> int:
    """Judges, or becomes the other program."""
    if words[:1] != ["judge"]:
        program = os.environ["FAKE_PROGRAM"]
        os.execv(program, [program, *words])
    given = arguments_of(words[1:])
    archive = Path(os.environ["FAKE_ARCHIVE"])
    known = archive.read_text().splitlines() if archive.exists() else []
    for text, kernel in ((TEMPLATE, given.template), (SIGNATURE, given.signature)):
        if kernel:
            print(text.format(kernel))
            return 0
    if given.history:
        attempts = [json.loads(line) for line in known]
        attempts = [each for each in attempts if given.kernel in (None, each["kernel"])]
        print(json.dumps({"schema": "rooflane-judge-history-1", "attempts": attempts}))
        return 0
    document = document_of(given, given.file.read_text(), len(known) + 1)
    with archive.open("a") as file:
        file.write(json.dumps(document) + "\n")
    print(json.dumps(document))
    return 0 if document["build"]["ok"] and document["shapes"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

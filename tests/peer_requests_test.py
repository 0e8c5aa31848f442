#!/usr/bin/env python3
"""Requests to a Python peer that are not as they should be: peer_requests_test.py PEERS.PY [N].

N (300) requests of a whole conversation, each changed at random in its fields, its text or its
bytes: every line gets one answer, and the worker serves the unchanged conversation afterwards. The
seed is printed on failure. Standard library only; the NumPy peer lives in the environment that
peers.py makes. Exits with 77 (skipped) where PyPI cannot be reached.
"""
import copy
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

import skip

PEERS = ""
COUNT = 300
SEED = 20260131

# What a field may become. Counts stay small: who asks for a billion samples gets them.
VALUES = [None, True, -1, 0, 1, 3, 2.5, 1e300, float("nan"), 2**70, "", "x", "float16", "int32",
          "f32\n", "\ud800", [], [1], [-1, 3], {}, {"op": "open"}]


def softmax(path):
    """The requests of a case from its beginning to its end."""
    def tensor(name, role):
        return {"name": name, "role": role, "dtype": "float32", "shape": [3, 5],
                "seed_scale": 8.0}

    return [
        {"op": "open", "case": "softmax:rows=3,cols=5 variant=numpy", "variant": "numpy",
         "math": "fp32", "threads": 1, "cache": "warm", "timer": "steady", "seed": 1,
         "problem": {"kernel": "softmax", "text": "softmax:rows=3,cols=5",
                     "parameters": {"rows": 3, "cols": 5},
                     "tensors": [tensor("x", "input"), tensor("y", "output")]}},
        {"op": "output", "path": path, "output_bytes": 60},
        {"op": "calibrate"},
        {"op": "sample", "n": 2, "runs": 3},
        {"op": "close"},
    ]


def places(value, before=()):
    """The paths to all fields of a document, containers among them."""
    items = (value.items() if isinstance(value, dict)
             else enumerate(value) if isinstance(value, list) else ())
    for key, item in items:
        yield (*before, key)
        yield from places(item, (*before, key))


def changed_field(request, draw):
    """The request with one field changed, doubled or left out."""
    request = copy.deepcopy(request)
    *way, last = draw.choice(list(places(request)))
    holder = request
    for key in way:
        holder = holder[key]
    if draw.random() < 0.2:
        del holder[last]
    else:
        holder[last] = draw.choice(VALUES)
    return json.dumps(request).encode()


def changed_bytes(request, draw):
    """The request's line with some of its bytes replaced, cut off or repeated."""
    line = bytearray(json.dumps(request).encode())
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(line))
        kind = draw.randrange(4)
        if kind == 0:
            line[at] = draw.randrange(256)
        elif kind == 1:
            del line[at:at + draw.randint(1, 8)]
        elif kind == 2:
            line[at:at] = line[at:at + draw.randint(1, 8)]
        else:
            line[at:at] = b"[" * draw.choice([1, 100_000])
        line = line or bytearray(b"{")
    return bytes(line).replace(b"\n", b" ")


class Requests(unittest.TestCase):
    """One worker through all of them."""

    def test_every_line_gets_one_answer(self):
        draw = random.Random(SEED)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "output")
            with open(path, "wb") as file:
                file.write(bytes(60))
            requests = softmax(path)
            lines = [draw.choice([changed_field, changed_bytes])(draw.choice(requests), draw)
                     for _ in range(COUNT)]
            # Half of them come to an open case.
            for at in range(0, len(lines), 2):
                lines[at] = json.dumps(requests[0]).encode() + b"\n" + lines[at]
            lines += [json.dumps(request).encode() for request in requests]
            asked = b"\n".join(lines) + b"\n"
            done = subprocess.run([sys.executable, PEERS, "--serve", "numpy"], input=asked,
                                  capture_output=True, timeout=300, check=False)
            said = f"seed {SEED}: {done.stderr.decode(errors='replace')[-2000:]}"
            self.assertEqual(done.returncode, 0, said)
            answers = [json.loads(line) for line in done.stdout.splitlines()]
            self.assertEqual(answers[0]["rooflane_worker"], 1)
            self.assertEqual(len(answers) - 1, asked.count(b"\n"), said)
            for answer in answers[1:]:
                self.assertIn(answer["ok"], (True, False))
                if not answer["ok"]:
                    self.assertTrue(answer["status"] and answer["reason"], answer)
            for answer in answers[-len(requests):]:
                self.assertTrue(answer["ok"], answer)


def prepare():
    """Makes the environment; exits with 77 when PyPI cannot be reached."""
    done = subprocess.run([sys.executable, PEERS, "--prepare", "numpy"], stderr=subprocess.PIPE,
                          text=True, check=False)
    sys.stderr.write(done.stderr)
    if no_packages := skip.no_packages(done.returncode, done.stderr):
        skip.everything(no_packages, "from PyPI: numpy")
    if done.returncode != 0:
        sys.exit(1)


if __name__ == "__main__":
    PEERS = os.path.abspath(sys.argv[1])
    COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else COUNT
    prepare()
    skip.main(sys.argv[:1], verbosity=1)

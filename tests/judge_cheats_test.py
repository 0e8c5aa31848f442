#!/usr/bin/env python3
"""The cheats of tests/cheats, each caught by its name, and the honest sources of tests/honest, none
of them accused: judge_cheats_test.py ROOFLANE [--times N] [NAME...]

A cheat's number is that of its file, and NAMES what the judge calls it. With --times each is judged
so often: a false alarm that is rare is found in a hundred runs.
"""
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import skip
from judging import RIGHT, TESTS, Judging

CHEATS, HONEST = TESTS / "cheats", TESTS / "honest"
NAMES = ("patched-timer", "late-return", "work-in-bind", "replay", "skipped-calls",
         "packed-constants", "cache-games", "recognises-verification", "low-precision",
         "easy-inputs", "unwritten-or-outside", "reads-reference", "disturbs-peers", "load-time",
         "foreign-library", "forged-result", "knows-shapes", "nan-games", "race", "late-crash")
# Verdicts in the place of FAILED. A plain source that gains nothing by its cheat is a LOSER.
VERDICTS = {"01-patched-timer": "SUSPECT", "20-late-crash": "CRASH", "20-late-hang": "TIMEOUT"}
# Judged like honest sources, and not accused: one is allowed, and shown; the other gains nothing.
ALLOWED = ("15-foreign-library", "01-slow-empty-calls")


class Repeated(Judging):
    times = 1

    def check(self, source: Path) -> None:
        for number in range(self.times):
            with self.subTest(run=number):
                self.check_once(source)


class Cheats(Repeated):
    def check_once(self, source: Path) -> None:
        name = source.stem
        cheat = NAMES[int(name[:2]) - 1]
        document = self.judge(source, threads=1 + (cheat == "race"))
        told = f"{document['verdict']} {document['cheat']} {document['reason']}"
        if name == "15-foreign-library":
            self.assertIn(document["verdict"], RIGHT, told)
        elif name == "01-slow-empty-calls":  # busy CPUs leave the times of calls too uncertain
            self.assertIn(document["verdict"], ("LOSER", "UNDECIDED"), told)
        else:
            self.assertEqual(document["verdict"], VERDICTS.get(name, "FAILED"), told)
        if name in ALLOWED:
            self.assertIsNone(document["cheat"], told)
        else:
            self.assertIsNotNone(document["cheat"], told)
            self.assertEqual(document["cheat"]["name"], cheat, told)
            self.assertTrue(document["cheat"]["evidence"].startswith(f"{cheat}: ")
                            or document["verdict"] in ("CRASH", "TIMEOUT"), told)
        if name == "15-foreign-library":
            self.assertTrue([path for path in document["maps"] if "openblas" in path],
                            f"{told} {document['maps']}")
        if name == "20-late-crash":
            self.assertRegex(told, r"SIGSEGV.*\b100\b|\b100\b.*SIGSEGV")

    def test_twenty_are_there(self) -> None:
        numbers = {int(path.name[:2]) for path in CHEATS.glob("*.c")}
        self.assertEqual(numbers, set(range(1, 21)))

    def test_a_memo_that_sleeps_is_no_winner_where_rows_are_many_either(self) -> None:
        document = self.judge(CHEATS / "04-replay.c", shape="softmax:rows=512,cols=1000")
        self.assertEqual((document["cheat"] or {}).get("name"), "replay", document["reason"])


class Honest(Repeated):
    def check_once(self, source: Path) -> None:
        document = self.judge(source)
        self.assertIn(document["verdict"], RIGHT, f"{document['cheat']} {document['reason']}")
        self.assertIsNone(document["cheat"])
        self.assertIsNone(document["first_wrong"])

    def test_what_an_opencl_compiler_refuses_is_told_with_its_message(self) -> None:
        source = self.folder / "wrong.cl"
        source.write_text("kernel void softmax(global float* x) { x[0] = undeclared; }\n",
                          encoding="utf-8")
        document = self.judge(source)
        self.assertEqual(document["verdict"], "BUILD", document["reason"])
        self.assertIn("undeclared", document["build"]["messages"])

    def test_a_kernel_has_all_its_cpus_whenever_it_is_called(self) -> None:
        """Between calls its process may wait on one CPU. With fewer this one computes nothing."""
        text = (HONEST / "plain.c").read_text(encoding="utf-8")
        text = text.replace("void softmax(", "static void compute(")
        source = self.folder / "cpus.c"
        source.write_text(f"""#include <sched.h>
{text}
static int cpus(void) {{
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}}
static int at_load;
__attribute__((constructor)) static void look(void) {{ at_load = cpus(); }}
void softmax(const float* x, float* y, int64_t rows, int64_t cols) {{
  if (at_load > 0 && cpus() >= at_load) compute(x, y, rows, cols);
}}
""", encoding="utf-8")
        document = self.judge(source, flags="-D_GNU_SOURCE",
                              threads=len(os.sched_getaffinity(0)))
        self.assertIn(document["verdict"], RIGHT,
                      f"{document['reason']} {document['build']['messages']}")


def add_tests(to: type[Any], folder: Path) -> None:
    """A test for each source."""
    for source in sorted(folder.iterdir()):
        name = "test_" + source.name.replace("-", "_").replace(".", "_")
        setattr(to, name, lambda self, source=source: self.check(source))


add_tests(Cheats, CHEATS)
add_tests(Honest, HONEST)

if __name__ == "__main__":
    Judging.rooflane = os.path.abspath(sys.argv[1])
    words = sys.argv[2:]
    if words[:1] == ["--times"]:
        Repeated.times = int(words[1])
        words = words[2:]
    skip.main(sys.argv[:1] + words)

#!/usr/bin/env python3
"""The cheats of tests/cheats, each caught by its name, and the honest sources of tests/honest, none
of them accused: judge_cheats_test.py ROOFLANE [NAME...]

A cheat's number and name are those of its file. Where the attempt has no effect, the judge says of
the source what it says of an honest one; those are listed below, with the reason.
"""
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import skip
from judging import RIGHT, TESTS, Judging

CHEATS, HONEST = TESTS / "cheats", TESTS / "honest"
# Judged like an honest source.
NO_EFFECT = {
    "01-patched-timer": "no clock of that process is asked",
    "08-hears-the-rhythm": "caught, or it heard none and computed: never faster",
    "13-disturbs-peers": "what it leaves behind is stopped while others run, and then ended",
    "14-load-time": "it is loaded in the jail, where it may do that",
    "15-foreign-library": "allowed, and shown",
    "16-forged-result": "results go through memory that the judge owns",
}
# Verdicts in the place of FAILED, SUSPECT, INACCURATE.
VERDICTS = {"20-late-crash": ("CRASH",), "20-late-hang": ("TIMEOUT",)}
# Where other names say the same of what happened.
ALSO = {
    "02-rings-early": "late-return work-in-bind",
    "05-skipped-calls": "recognises-verification",
    "07-cache-games": "late-return",
    "08-recognises-verification": "skipped-calls",
    "12-reads-reference": "easy-inputs",
    "17-knows-shapes": "easy-inputs",
    "20-late-hang": "late-crash",
}


class Cheats(Judging):
    def check(self, source: Path) -> None:
        name = source.stem
        number, _, cheat = name.partition("-")
        document = self.judge(source, threads=1 + (cheat == "race"))
        told = f"{document['verdict']} {document['cheat']} {document['reason']}"
        if name in NO_EFFECT:
            self.assertTrue(document["verdict"] in RIGHT or document["cheat"], told)
            self.assertNotEqual(document["verdict"], "WINNER", told)
            return
        self.assertIn(document["verdict"],
                      VERDICTS.get(name, ("FAILED", "SUSPECT", "INACCURATE")), told)
        names = {cheat, *ALSO.get(name, "").split()}
        if name not in VERDICTS:
            self.assertIsNotNone(document["cheat"], told)
        if document["cheat"]:
            self.assertIn(document["cheat"]["name"], names, told)
            self.assertTrue(document["cheat"]["evidence"], told)

    def test_twenty_are_there(self) -> None:
        numbers = {int(path.name[:2]) for path in CHEATS.glob("*.c")}
        self.assertEqual(numbers, set(range(1, 21)))

    def test_a_memo_that_sleeps_is_no_winner_with_its_rows_many_either(self) -> None:
        document = self.judge(CHEATS / "04-replay.c", shape="softmax:rows=512,cols=1000")
        self.assertEqual((document["cheat"] or {}).get("name"), "replay", document["reason"])

    def test_a_foreign_library_is_among_the_mapped_files(self) -> None:
        document = self.judge(CHEATS / "15-foreign-library.c")
        if document["verdict"] == "CRASH" or document["verdict"] not in RIGHT:
            self.skipTest(skip.reason("no libopenblas.so.0 in the jail", "libopenblas0"))
        self.assertTrue([path for path in document["maps"] if "openblas" in path],
                        document["maps"])

    def test_a_crash_is_told_with_its_call(self) -> None:
        document = self.judge(CHEATS / "20-late-crash.c")
        self.assertRegex(document["reason"], r"\b100\b")
        self.assertRegex(document["reason"], r"SIGSEGV|signal 11|Segmentation")


class Honest(Judging):
    def check(self, source: Path) -> None:
        document = self.judge(source)
        self.assertIn(document["verdict"], RIGHT, f"{document['cheat']} {document['reason']}")
        self.assertIsNone(document["cheat"])
        self.assertIsNone(document["first_wrong"])


def add_tests(to: type[Any], folder: Path) -> None:
    """A test for each source."""
    for source in sorted(folder.iterdir()):
        name = "test_" + source.name.replace("-", "_").replace(".", "_")
        setattr(to, name, lambda self, source=source: self.check(source))


add_tests(Cheats, CHEATS)
add_tests(Honest, HONEST)

if __name__ == "__main__":
    Judging.rooflane = os.path.abspath(sys.argv[1])
    skip.main(sys.argv[:1] + sys.argv[2:])

#!/usr/bin/env python3
"""Tests that lack a device or a package are skipped, say so and are counted so.
skip_test.py COUNT_TESTS_PY CONFORMANCE_TEST [OPENCL_PROGRAMS_TEST OPENCL_TENSOR_TEST]
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

import skip

COUNT_TESTS, CONFORMANCE, OPENCL = "", "", []
NO_DEVICE = r"(?m)^skipped: (\d+) cases: no OpenCL device; install pocl-opencl-icd$"


class Folder(unittest.TestCase):
    """Every test has an empty folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def call(self, *command: str, **environment: str) -> tuple[int, str]:
        """Exit status, standard output."""
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              env={**os.environ, **environment})
        return done.returncode, done.stdout


class Doctest(Folder):
    def without_device(self, *command: str, **environment: str) -> tuple[int, str]:
        status, out = self.call(*command, OCL_ICD_VENDORS=self.folder, OCL_ICD_FILENAMES="",
                                OPENCL_VENDOR_PATH=self.folder, **environment)
        if "no OpenCL device" not in out:
            self.skipTest("this OpenCL loader finds its drivers by other means")
        return status, out

    def programs(self) -> tuple[str, str]:
        if not OPENCL:
            self.skipTest("built without OpenCL")
        return OPENCL[0], OPENCL[1]

    def test_a_program_whose_cases_all_lack_a_device_is_skipped(self) -> None:
        status, out = self.without_device(self.programs()[1])
        self.assertEqual(status, 77, out)
        told = re.search(NO_DEVICE, out)
        self.assertTrue(told, out)
        self.assertEqual(out.splitlines()[-1], f"cases: 0 passed, 0 failed, {told[1]} skipped")

    def test_cases_without_their_device_are_told_from_those_that_passed(self) -> None:
        status, out = self.without_device(self.programs()[0])
        self.assertEqual(status, 0, out)
        told = re.search(NO_DEVICE, out)
        self.assertTrue(told, out)
        self.assertRegex(out.splitlines()[-1],
                         f"^cases: [1-9]\\d* passed, 0 failed, {told[1]} skipped$")

    def test_a_variant_that_is_absent_is_a_skipped_part_of_a_case(self) -> None:
        self.programs()
        status, out = self.without_device(CONFORMANCE, "--test-case=ladders*",
                                          CONFORMANCE_KERNEL="softmax")
        self.assertEqual(status, 0, out)
        self.assertRegex(out, "(?m)^skipped: parts of 1 case: opencl is absent: no OpenCL device: "
                              ".*; install pocl-opencl-icd$")
        self.assertEqual(out.splitlines()[-1], "cases: 1 passed, 0 failed, 1 skipped")

    def test_a_program_that_ran_no_case_fails(self) -> None:
        status, out = self.call(CONFORMANCE, "--test-case=no case has this name")
        self.assertEqual((status, out.splitlines()[-1]),
                         (1, "cases: 0 passed, 0 failed, 0 skipped"))


class Python(Folder):
    def run_cases(self, body: str) -> tuple[int, list[str]]:
        """Exit status and standard output of a program with these tests."""
        program = os.path.join(self.folder, "program.py")
        with open(program, "w", encoding="utf-8") as file:
            file.write("import sys\nimport unittest\nimport skip\n"
                       "class Cases(unittest.TestCase):\n"
                       f"{textwrap.indent(textwrap.dedent(body), '  ')}\n"
                       "skip.main(sys.argv)\n")
        status, out = self.call(sys.executable, program,
                                PYTHONPATH=os.path.dirname(os.path.abspath(skip.__file__)))
        return status, out.splitlines()

    def test_skipped_cases_are_counted_by_reason(self) -> None:
        status, out = self.run_cases("""
            def test_a(self): self.skipTest(skip.reason("no device", "driver"))
            def test_b(self): self.skipTest(skip.reason("no device", "driver"))
            def test_c(self): self.skipTest(skip.reason("two GPUs"))
            def test_d(self): pass""")
        self.assertEqual((status, out), (0, ["skipped: 2 cases: no device; install driver",
                                             "skipped: 1 case: two GPUs",
                                             "cases: 1 passed, 0 failed, 3 skipped"]))

    def test_a_program_whose_cases_were_all_skipped_is_skipped(self) -> None:
        status, out = self.run_cases("""
            def test_a(self): self.skipTest(skip.reason("no device", "driver"))""")
        self.assertEqual((status, out), (77, ["skipped: 1 case: no device; install driver",
                                              "cases: 0 passed, 0 failed, 1 skipped"]))

    def test_a_case_some_of_whose_subtests_were_skipped_passes(self) -> None:
        status, out = self.run_cases("""
            def test_a(self):
              for i in range(3):
                with self.subTest(i):
                  if i == 1: self.skipTest("no device")""")
        self.assertEqual((status, out), (0, ["skipped: parts of 1 case: no device",
                                             "cases: 1 passed, 0 failed, 1 skipped"]))

    def test_a_failure_is_one_whatever_its_subtests(self) -> None:
        status, out = self.run_cases("""
            def test_a(self): self.skipTest("no device")
            def test_b(self):
              for i in range(3):
                with self.subTest(i): self.assertEqual(i, 1)
            def test_c(self): pass""")
        self.assertEqual((status, out[-1]), (1, "cases: 1 passed, 1 failed, 1 skipped"))

    def test_what_fails_before_any_test_fails_the_program(self) -> None:
        status, out = self.run_cases("""
            @classmethod
            def setUpClass(cls): raise OSError
            def test_a(self): pass""")
        self.assertEqual((status, out), (1, ["cases: 0 passed, 1 failed, 0 skipped"]))

    def test_a_program_without_cases_fails(self) -> None:
        self.assertNotEqual(self.run_cases("pass")[0], 0)


class Closing(Folder):
    """What count_tests.py makes of made-up logs."""

    def close(self, *tests: tuple[str, str, str], status: int = 0,
              checks: tuple[str, ...] = ()) -> tuple[int, list[str]]:
        log = os.path.join(self.folder, "testlog.json")
        with open(log, "w", encoding="utf-8") as file:
            for name, result, stdout in tests:
                file.write(json.dumps({"name": name, "result": result, "stdout": stdout}) + "\n")
        closed, out = self.call(sys.executable, COUNT_TESTS, log, str(status), *checks)
        return closed, out.splitlines()

    def test_cases_are_summed_and_other_tests_count_once(self) -> None:
        self.assertEqual(
            self.close(("core", "OK", "cases: 12 passed, 0 failed, 0 skipped\n"),
                       ("install", "OK", "sum 16\n"), ("cli", "EXPECTEDFAIL", "")),
            (0, ["14 passed, 0 failed"]))

    def test_failures_are_counted_and_a_crash_is_one(self) -> None:
        self.assertEqual(
            self.close(("core", "FAIL", "cases: 10 passed, 2 failed, 0 skipped\n"),
                       ("exp", "ERROR", "terminated\n"),
                       ("io", "TIMEOUT", "cases: 3 passed, 0 failed, 0 skipped\n"), status=1),
            (1, ["13 passed, 4 failed"]))

    def test_what_was_skipped_stands_in_a_table_by_reason(self) -> None:
        device = "skipped: 3 cases: no OpenCL device; install pocl-opencl-icd\n"
        status, out = self.close(
            ("opencl", "SKIP", device + "cases: 0 passed, 0 failed, 3 skipped\n"),
            ("opencl_programs", "OK", device + "cases: 5 passed, 0 failed, 3 skipped\n"),
            ("conformance", "OK",
             "skipped: parts of 2 cases: onednn is absent: built without oneDNN; "
             "install libdnnl-dev\ncases: 2 passed, 0 failed, 2 skipped\n"),
            ("data", "SKIP",
             "skipped: 1 case: PyPI cannot be reached; install from PyPI: pandas\n"),
            ("gpu", "OK", "skipped: 1 case: two GPUs\ncases: 1 passed, 0 failed, 1 skipped\n"),
            ("old", "SKIP", "no word of why\n"))
        self.assertEqual((status, out[-1]), (0, "8 passed, 0 failed, 11 skipped"))
        rows = [re.split(r" {2,}", line) for line in out[:-1]]
        self.assertEqual(rows, [
            ["skipped", "why", "install", "tests"],
            ["6", "no OpenCL device", "pocl-opencl-icd", "opencl, opencl_programs"],
            ["2", "onednn is absent: built without oneDNN", "libdnnl-dev", "conformance"],
            ["1", "PyPI cannot be reached", "from PyPI: pandas", "data"],
            ["1", "two GPUs", "gpu"],
            ["1", "it does not say", "old"],
            ["To run them: apt-get install libdnnl-dev pocl-opencl-icd"],
            ["The build looks for them once: rm -r build"]])

    def test_a_run_in_which_nothing_passed_fails(self) -> None:
        self.assertEqual(self.close(), (1, ["0 passed, 1 failed"]))
        status, out = self.close(("opencl", "SKIP", "skipped: 1 case: no OpenCL device\n"))
        self.assertEqual((status, out[-1]), (1, "0 passed, 1 failed, 1 skipped"))
        self.assertEqual(self.close(("core", "OK", ""), status=1), (1, ["1 passed, 1 failed"]))

    def test_other_checks_count_once_each(self) -> None:
        core = ("core", "OK", "cases: 12 passed, 0 failed, 0 skipped\n")
        self.assertEqual(self.close(core, checks=("lint=0",)), (0, ["13 passed, 0 failed"]))
        self.assertEqual(self.close(core, checks=("lint=2",)),
                         (1, ["lint failed: see above", "12 passed, 1 failed"]))


if __name__ == "__main__":
    COUNT_TESTS, CONFORMANCE = map(os.path.abspath, sys.argv[1:3])
    OPENCL = [os.path.abspath(program) for program in sys.argv[3:]]
    skip.main(sys.argv[:1])

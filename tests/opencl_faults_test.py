#!/usr/bin/env python3
"""OpenCL devices that fail, are small, or are several: each gives a clear status in its row, and
the rest of the run goes on. Failing is done by cl_faults.so, laid before the OpenCL loader, and by
broken_icd.so, a driver that aborts.
opencl_faults_test.py ROOFLANE CL_FAULTS_SO BROKEN_ICD_SO
"""
import csv
import ctypes
import json
import os
import re
import sys

import skip
from command_line import CommandLine

SOFTMAX = "softmax:rows=4,cols=40"
OTHER = "softmax:rows=4,cols=50"
faults_library = broken_driver = ""


class Faults(CommandLine):
    def faulty(self, faults: str, **more: str) -> dict[str, str]:
        return {"LD_PRELOAD": faults_library, "CL_FAULTS": faults, **more}

    def setUp(self) -> None:
        super().setUp()
        if missing := skip.no_device(self.rooflane):
            self.skipTest(missing)

    def need_cpu_device(self) -> None:
        """On other devices features are probed and a clock is raised by kernels of their own, so
        that the launch that fails and the program that is kept are others."""
        found = json.loads(self.succeed("doctor", "--json"))["device_backends"]
        kinds = [device["kind"] for backend in found for device in backend["devices"]]
        if kinds[0] != "CPU":
            self.skipTest(skip.reason("the first OpenCL device is no CPU", "pocl-opencl-icd"))

    def bench(self, *arguments: str, env: dict[str, str]) -> tuple[int, dict[str, dict], str]:
        """Exit status, rows by shape, everything printed."""
        status, out, err = self.call("bench", *arguments, "-v", "opencl", "--threads", "1",
                                     "--launches", "1", "--min-time", "0.001",
                                     "--ceilings-time", "0.1", "--csv", "rows.csv", env=env)
        with open(self.path("rows.csv"), newline="", encoding="utf-8") as file:
            rows = {row["shape"]: row for row in csv.DictReader(file)}
        return status, rows, out + err


class Bench(Faults):
    def test_each_fault_costs_one_row_which_says_what_it_was(self):
        self.need_cpu_device()
        # The worker of the first shape takes the token at its second launch.
        self.write("token", b"")
        faults = f"workers;gpu;allocation=40000;launch=2;token={self.path('token')}"
        shapes = [SOFTMAX, "softmax:rows=100,cols=100", OTHER]
        status, rows, text = self.bench(*(word for shape in shapes for word in ["--shape", shape]),
                                        env=self.faulty(faults))
        self.assertFalse(os.path.exists(self.path("token")), text)
        lost, refused, passed = [rows[shape.split(":")[1]] for shape in shapes]
        self.assertEqual(lost["status"], "RUNTIME_ERROR", text)
        self.assertIn("CL_OUT_OF_RESOURCES (-5)", lost["reason"])
        self.assertIn("a kernel faulted", lost["reason"])
        self.assertEqual(lost["p50_ns"], "")
        self.assertEqual(refused["status"], "RUNTIME_ERROR", text)
        self.assertIn("CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)", refused["reason"])
        self.assertIn("the device is out of memory", refused["reason"])
        self.assertEqual(passed["status"], "PASSED", text)
        self.assertEqual(status, 1)


class Lost(Faults):
    def test_verify_goes_on_after_a_fault(self):
        self.need_cpu_device()
        self.write("token", b"")
        status, out, _ = self.call("verify", "-v", "opencl", "--shape", SOFTMAX, "--shape", OTHER,
                                   "--shape", "gemm:m=3,n=4,k=5", "--threads", "1",
                                   env=self.faulty(f"launch=1;token={self.path('token')}"))
        lines = out.splitlines()
        self.assertRegex(lines[0], "^RUNTIME_ERROR .*CL_OUT_OF_RESOURCES")
        for line in lines[1:]:
            self.assertRegex(line, "^PASSED ")
        self.assertEqual((status, len(lines)), (1, 3))

    def test_a_device_without_contexts_fails_its_rows_only_and_doctor_says_why(self):
        env = self.faulty("no_context")
        status, out, _ = self.call("verify", "-v", "opencl,scalar", "--shape", SOFTMAX,
                                   "--threads", "1", env=env)
        self.assertEqual(status, 1)
        self.assertRegex(out, "(?m)^RUNTIME_ERROR .*variant=opencl.*clCreateContext: CL_OUT_OF_RES")
        self.assertRegex(out, "(?m)^PASSED .*variant=scalar")
        doctor = self.succeed("doctor", env=env)
        self.assertRegex(doctor, r"(?m)^ +unusable; a simple kernel: clCreateContext: CL_OUT_OF")


class Drivers(Faults):
    ABORTS = "SIGABRT: broken_icd: no such luck"

    def vendors(self, *sound: str) -> dict[str, str]:
        """A loader's folder with the driver that aborts and links to sound ones."""
        address = ctypes.CDLL("libOpenCL.so.1").clGetExtensionFunctionAddress
        address.restype = ctypes.c_void_p
        if not address(b"clGetICDLoaderInfoOCLICD"):  # it says so itself
            self.skipTest(skip.reason("the OpenCL loader is not ocl-icd", "ocl-icd-libopencl1"))
        folder = self.path("vendors")
        os.mkdir(folder)
        self.write("vendors/broken.icd", broken_driver.encode() + b"\n")
        for path in sound:
            os.symlink(path, os.path.join(folder, os.path.basename(path)))
        return {"OCL_ICD_VENDORS": folder, "OCL_ICD_FILENAMES": ""}

    def test_one_that_aborts_makes_opencl_absent_and_all_else_works(self):
        env = self.vendors()
        absent = f"no OpenCL device: its driver crashed at start: broken.icd: {self.ABORTS}"
        self.assertIn(absent, " ".join(self.succeed("list", env=env).split()))
        self.assertIn(f"broken.icd is not used: it crashed at start: {self.ABORTS}",
                      self.succeed("doctor", env=env))
        out = self.succeed("verify", "-v", "scalar,hwy", "--shape", SOFTMAX, "--threads", "1",
                           env=env)
        self.assertEqual(len(re.findall("(?m)^PASSED ", out)), 2)
        self.refuse(3, ["broken.icd", "SIGABRT"], "verify", "-v", "opencl", "--shape", SOFTMAX,
                    env=env)

    def test_one_that_compiles_wrongly_is_left_out_and_its_devices_are_absent(self):
        env = self.faulty("version=OpenCL 3.0 PoCL 5.0-debian")
        fault = "compiles kernels wrongly: .*: PoCL 5 .*: install PoCL 3, 4 or 6"
        self.assertRegex(" ".join(self.succeed("list", env=env).split()),
                         "no OpenCL device: its driver " + fault)
        self.assertIn("is not used: it compiles kernels wrongly", self.succeed("doctor", env=env))
        self.refuse(3, ["opencl", "PoCL 5"], "verify", "-v", "opencl", "--shape", SOFTMAX, env=env)

    def test_one_that_aborts_takes_no_other_driver_along(self):
        folder = os.environ.get("OCL_ICD_VENDORS", "/etc/OpenCL/vendors")
        if not os.path.isdir(folder):
            self.skipTest("the loader's folder is unknown")
        env = self.vendors(*(os.path.join(folder, name) for name in os.listdir(folder)
                             if name.endswith(".icd")))
        self.assertIn("broken.icd is not used", self.succeed("doctor", env=env))
        self.assertRegex(self.succeed("verify", "-v", "opencl", "--shape", SOFTMAX, "--threads",
                                      "1", env=env), "^PASSED ")


class Memory(Faults):
    def test_more_than_the_device_holds_is_refused_before_anything_is_allocated(self):
        # Nothing of that size can be had either: allocating would be another error.
        env = self.faulty("memory=1000000;allocation=300000")
        shape = "softmax:rows=100,cols=1000"
        status, out, _ = self.call("verify", "-v", "opencl", "--shape", shape, env=env)
        self.assertRegex(out, "(?m)^RUNTIME_ERROR .*out of memory")  # 2 x 400 000 bytes do fit
        shape = "softmax:rows=100,cols=2000"
        status, out, err = self.call("verify", "-v", "opencl", "--shape", shape, env=env)
        self.assertRegex(out,
                         "(?m)^UNSUPPORTED .*1600000 bytes of device memory exceed the 1000000")
        self.assertEqual(status, 3, out + err)


class Tunings(Faults):
    GEMM = "gemm:m=40,n=50,k=30"

    def opened(self, tuning: str, faults: str) -> dict:
        """What a worker answers when it plans the problem."""
        request = {"op": "open", "case": f"{self.GEMM} variant=opencl{tuning}"}
        out = self.succeed("worker", env=self.faulty(faults), stdin=json.dumps(request) + "\n")
        return json.loads(out.splitlines()[1])

    def test_a_group_with_too_many_registers_is_an_error_that_names_both_sizes(self):
        self.need_cpu_device()
        first = self.opened("", "gpu")
        self.assertTrue(first["ok"], first)
        asked = ",".join(f"{name}={value}" for name, value in first["tuning"])
        refused = self.opened(f" tuning={asked}", "gpu;group=1")
        self.assertEqual((refused["ok"], refused["status"]), (False, "RUNTIME_ERROR"), refused)
        self.assertRegex(refused["reason"], r"groups of \d+ work-items, .* has registers for 1$")


class Devices(Faults):
    def test_each_of_two_devices_is_chosen_by_its_number_and_named_in_its_rows(self):
        env = {"POCL_DEVICES": "pthread basic"}
        doctor = self.succeed("doctor", env=env)
        if "OpenCL 1" not in doctor:
            self.skipTest(skip.reason("the OpenCL driver is not PoCL", "pocl-opencl-icd"))
        self.assertRegex(self.succeed("verify", "-v", "opencl", "--shape", SOFTMAX, "--threads",
                                      "1", "--cl-device", "0", env=env), "^PASSED ")
        _, rows, text = self.bench("--shape", SOFTMAX, "--cl-device", "1", env=env)
        row = rows[SOFTMAX.split(":")[1]]
        self.assertEqual(row["status"], "PASSED", text)
        self.assertRegex(doctor, rf"(?m)^OpenCL 1 +CPU {re.escape(row['device'])} \(")
        self.assertNotRegex(doctor, rf"(?m)^OpenCL 0 +CPU {re.escape(row['device'])} \(")
        self.refuse(3, ["--cl-device 2", "2 OpenCL devices"], "verify", "-v", "opencl", "--shape",
                    SOFTMAX, "--cl-device", "2", env=env)

    def test_two_devices_of_one_name_are_told_apart(self):
        doctor = self.succeed("doctor", env={"POCL_DEVICES": "basic basic"})
        if "OpenCL 1" not in doctor:
            self.skipTest(skip.reason("the OpenCL driver is not PoCL", "pocl-opencl-icd"))
        first, second = [line.split(" CPU ")[1].split(" (Portable")[0]
                         for line in doctor.splitlines() if line.startswith("OpenCL")]
        self.assertEqual(second, first + " #2")


class Cache(Faults):
    def test_programs_are_kept_in_the_folder_that_the_environment_names(self):
        self.need_cpu_device()
        env = {"ROOFLANE_PROGRAM_CACHE": self.path("programs")}
        arguments = ["verify", "-v", "opencl", "--shape", SOFTMAX, "--threads", "1"]
        self.succeed(*arguments, env=env)
        kept = os.listdir(self.path("programs"))
        self.assertEqual(len(kept), 1)
        self.assertRegex(self.succeed("doctor", env=env), r"programs: \d+ programs?, ")
        path = os.path.join(self.path("programs"), kept[0])
        with open(path, "rb") as file:
            whole = file.read()
        for damage in [b"", whole[:-100]]:
            with open(path, "wb") as file:
                file.write(damage)
            self.assertIn("PASSED", self.succeed(*arguments, env=env))
            self.assertGreater(os.path.getsize(path), len(damage))

    def test_a_folder_that_cannot_be_made_stops_nothing(self):
        self.write("file", b"")
        env = {"ROOFLANE_PROGRAM_CACHE": self.path("file/programs")}
        self.assertIn("PASSED", self.succeed("verify", "-v", "opencl", "--shape", SOFTMAX, env=env))
        self.assertIn("built anew in every process", self.succeed("doctor", env=env))
        off = self.succeed("doctor", env={"ROOFLANE_PROGRAM_CACHE": ""})
        self.assertIn("kept nowhere", off)


if __name__ == "__main__":
    CommandLine.rooflane, faults_library, broken_driver = (
        os.path.abspath(path) for path in sys.argv[1:4])
    skip.main(sys.argv[:1] + sys.argv[4:])

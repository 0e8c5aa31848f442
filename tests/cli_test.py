#!/usr/bin/env python3
"""Arguments, arrays and streams of the command line as a user types it, error paths included; what
is measured stands in cli_measure_test.py. cli_test.py ROOFLANE ROOFLANE_WITH_FAKES.
"""
import glob
import json
import os
import platform
import re
import struct
import subprocess

import skip
from command_line import (
    FORWARDED,
    PATIENCE,
    SMALL,
    VERBS,
    CommandLine,
    floats,
    main,
    matmul,
    npy,
    read_npy,
)


class Help(CommandLine):
    def test_help_and_version_everywhere(self):
        self.assertEqual(sorted(re.findall(r"(?m)^  (\w+) ", self.succeed("--help"))),
                         sorted(VERBS + FORWARDED))
        version = self.succeed("--version")
        self.assertRegex(version, r"^rooflane \d+\.\d+\.\d+\n$")
        for verb in FORWARDED:
            self.assertEqual(self.succeed(verb, "--version"), version)
        for verb in VERBS:
            with self.subTest(verb):
                self.assertIn("Examples:", self.succeed(verb, "--help"))
                self.assertEqual(self.succeed(verb, "--version"), version)

    def test_no_verb_and_unknown_verbs_and_flags(self):
        self.refuse(2, ["verb is missing", "bench"])
        self.refuse(2, ["'bnech'", "nearest is 'bench'"], "bnech")
        self.refuse(2, ["'--verson'", "'--version'"], "--verson")
        for verb in VERBS:
            with self.subTest(verb):
                self.refuse(2, ["'--vresion'", "nearest is '--version'"], verb, "--vresion")
        self.refuse(2, ["'--parms'", "'--params'"], "run", "gemm", "--parms", "m=1")
        self.refuse(2, ["--csv", "needs a value"], "bench", "--csv")
        self.refuse(2, ["--csv", "needs a value"], "bench", "--csv=")
        self.refuse(2, ["--csv", "needs a value"], "bench", "--csv", "")
        self.refuse(2, ["--csv", "2 times"], "bench", "--csv", "x", "--csv", "y")
        self.refuse(2, ["'extra'"], "run", "gemm", "extra")


class ListAndDoctor(CommandLine):
    def test_list_names_every_kernel_and_variant(self):
        out = self.succeed("list")
        for kernel in ["gemm", "softmax", "layernorm", "attention"]:
            for variant in ["scalar", "blas", "hwy", "opencl"]:
                found = re.search(rf"(?m)^{kernel} +{variant} .*(yes|absent)$", out)
                self.assertTrue(found, (kernel, variant))
                if found[1] == "absent":
                    self.assertRegex(
                        out, rf"(?m)^{variant} is absent \([^)]*\b{kernel}\b[^)]*\): .+")
        self.assertLessEqual(max(map(len, out.splitlines())), 120)

    def test_list_as_json(self):
        document = json.loads(self.succeed("list", "--json"))
        self.assertEqual([k["name"] for k in document["kernels"]][:4],
                         ["gemm", "softmax", "layernorm", "attention"])
        for kernel in document["kernels"]:
            for variant in kernel["variants"]:
                self.assertEqual("reason" in variant, not variant["available"])

    def test_list_of_named_kernels(self):
        kernels = {line.split()[0] for line in self.succeed("list", "-k", "rope,gemm").splitlines()
                   if line.endswith((" yes", " absent"))}
        self.assertEqual(kernels, {"gemm", "rope"})
        document = json.loads(self.succeed("list", "--json", "-k", "gemm", "--preset", "default"))
        self.assertEqual([kernel["name"] for kernel in document["kernels"]], ["gemm"])
        self.assertEqual({problem["text"].split(":")[0] for problem in document["problems"]},
                         {"gemm"})
        self.refuse(2, ["'gemn'", "gemm"], "list", "-k", "gemn")
        self.refuse(2, ["-k"], "list", "-k", "gemm", "--shape", "softmax:rows=2,cols=3")

    def test_list_tells_parameters_and_resolves_problems(self):
        shape = "attention:batch=1,heads=4,kv_heads=2,q_len=3,kv_len=5..6+1,head_dim=16"
        document = json.loads(self.succeed("list", "--json", "--shape", shape, "--shape",
                                           "gemm:m=2,n=3,k=4,beta=0.5,prepack=1"))
        kernels = {kernel["name"]: {p["name"]: p for p in kernel["parameters"]}
                   for kernel in document["kernels"]}
        self.assertEqual(kernels["gemm"]["batch"], {"name": "batch", "kind": "size",
                                                    "required": False, "default": 1, "least": 0})
        self.assertNotIn("default", kernels["attention"]["kv_heads"])  # it is that of heads
        self.assertNotIn("default", kernels["gemm"]["m"])
        kind = kernels["softmax"]["type"]
        self.assertEqual((kind["kind"], kind["default"]), ("choice", kind["choices"][0]))
        half, = json.loads(self.succeed("list", "--json", "--shape",
                                        "softmax:rows=2,cols=3,type=f16"))["problems"]
        self.assertEqual(half["parameters"]["type"], "f16")
        self.assertEqual([t["dtype"] for t in half["tensors"]], ["float16", "float16"])
        self.assertEqual(half["cost"]["bytes"], 2 * 2 * 6)
        short, long, gemm = document["problems"]
        self.assertEqual(short["parameters"], {
            "batch": 1, "heads": 4, "kv_heads": 2, "q_len": 3, "kv_len": 5, "head_dim": 16,
            "causal": 0, "scale": 0.25, "v_dim": 16, "window": 0, "softcap": 0, "mask": 0,
            "lengths": 0, "type": "f32", "kv_type": "f32"})
        self.assertEqual(long["parameters"]["kv_len"], 6)
        self.assertEqual(short["cost"]["exps"], 4 * 3 * 5)
        self.assertEqual([(t["name"], t["role"], t["dtype"], t["shape"]) for t in gemm["tensors"]],
                         [("a", "input", "float32", [1, 2, 4]),
                          ("b", "constant", "float32", [1, 4, 3]),
                          ("c0", "input", "float32", [1, 2, 3]),
                          ("c", "output", "float32", [1, 2, 3])])
        self.assertEqual(gemm["cost"], {"flops": 48, "exps": 0, "bytes": 4 * (8 + 12 + 6 + 6)})
        self.assertEqual(gemm["text"], "gemm:m=2,n=3,k=4,beta=0.5,prepack=1")
        self.refuse(2, ["--shape", "'gemn'"], "list", "--shape", "gemn:m=1")

    def test_list_resolves_presets_and_seeded_random_problems(self):
        def texts(preset):
            told = json.loads(self.succeed("list", "--json", "--preset", preset))
            return [problem["text"] for problem in told["problems"]]
        self.assertIn("gemm:m=256,n=256,k=256", texts("default"))
        self.assertEqual(texts("random:3:7"), texts("random:3:7"))
        self.assertNotEqual(texts("random:3:7"), texts("random:3:8"))
        kernels = [text.split(":")[0] for text in texts("random:3:7")]
        known = json.loads(self.succeed("list", "--json"))["kernels"]
        self.assertEqual({kernel: kernels.count(kernel) for kernel in kernels},
                         {kernel["name"]: 3 for kernel in known})
        self.refuse(2, ["preset", "'defualt'", "default"], "list", "--preset", "defualt")

    def test_json_goes_to_standard_output_or_into_a_file_beside_the_text(self):
        text = self.succeed("list")
        self.assertEqual(self.succeed("list", "--json", "l.json"), text)
        self.assertEqual(self.succeed("list", "--json=m.json"), text)
        self.assertEqual(self.read("l.json"), self.succeed("list", "--json").encode())
        self.assertEqual(self.read("l.json"), self.read("m.json"))
        self.refuse(2, ["--json", "2 times"], "list", "--json", "--json=x")
        self.refuse(2, ["--json", "needs a value"], "list", "--json=")
        self.refuse(2, ["--json", "no/x"], "list", "--json", "no/x")
        # Where files are read, a word behind --json is one of them.
        self.write("rows.csv", (
            b"schema_version,kernel,variant,shape,status,p50_ns\n1,gemm,hwy,m=1,PASSED,5\n"))
        document = json.loads(self.succeed("roofline", "--json", "rows.csv"))
        self.assertEqual(document["classes"][0]["use"], "hwy")
        self.succeed("roofline", "--json=r.json", "rows.csv")
        self.assertEqual(json.loads(self.read("r.json")), document)
        self.assertTrue(self.read("rows.csv").startswith(b"schema_version,"))

    def test_doctor_as_json(self):
        document = json.loads(self.succeed("doctor", "--json"))
        self.assertEqual(document["slug"] + "\n", self.succeed("doctor", "--slug"))
        self.assertTrue(any(target["here"] for target in document["isa_targets"]))
        devices = [device for backend in document["device_backends"]
                   for device in backend["devices"]]
        self.assertEqual(len(devices), len(re.findall(r"(?m)^OpenCL \d", self.succeed("doctor"))))

    def test_schemas_are_of_verbs_that_write_json(self):
        titles = {verb: json.loads(self.succeed("schema", *verb.split()))["title"]
                  for verb in ("", "bench", "list", "doctor", "ceilings", "calibrate", "compare",
                                "judge", "roofline", "tuned")}
        self.assertEqual(titles[""], titles["bench"])
        self.assertEqual(len(set(titles.values())), 9)
        self.refuse(2, ["'rofline'", "nearest is 'roofline'"], "schema", "rofline")

    def test_without_an_opencl_device_opencl_is_absent_with_the_reason(self):
        nothing = {"OCL_ICD_VENDORS": self.path("none"), "OPENCL_VENDOR_PATH": self.path("none"),
                   "OCL_ICD_FILENAMES": ""}
        if "OpenCL 0" in self.succeed("doctor", env=nothing):
            self.skipTest("this OpenCL loader finds its drivers by other means")
        document = json.loads(self.succeed("list", "--json", env=nothing))
        for kernel in document["kernels"]:
            opencl = [v for v in kernel["variants"] if v["name"] == "opencl"][0]
            self.assertFalse(opencl["available"])
            self.assertIn("OpenCL", opencl["reason"])
        self.refuse(3, ["opencl", "absent"], "verify", "-v", "opencl", "--shape", SMALL,
                    env=nothing)
        if "built without" not in opencl["reason"]:
            # Where a card is, its vendor's driver is what is missing.
            self.assertRegex(self.succeed("doctor", env=nothing),
                             "pocl-opencl-icd|card is present, but no file in ")
        # Not named, it is left out, and the run is good.
        status, out, err = self.call("verify", "--shape", SMALL, "--threads", "1", env=nothing)
        self.assertEqual(status, 0, err)
        self.assertNotIn("variant=opencl", out)
        self.assertRegex(err, r"(?m)^note: absent variants: .*\bopencl\b")
        self.assertEqual(err.count("note: absent"), 1, err)

    def test_doctor_names_the_machine(self):
        out = self.succeed("doctor")
        for word in ["CPU", "caches", "ISA targets", "blas", "OpenCL", "this machine down"]:
            self.assertIn(word, out)
        out = self.succeed("doctor", env={"OMP_WAIT_POLICY": "passive"})
        self.assertRegex(out, r"(?m)^Problems that slow this machine down, and their fixes:\n"
                              r"(.*\n)*- OMP_WAIT_POLICY=passive: .*\n    unset OMP_WAIT_POLICY$")
        self.assertRegex(out, r"(?m)^counters +(absent: \S.*|.*\b(cycles|instructions)\b.*)$")

    def test_a_calibration_is_kept_and_doctor_tells_its_age(self):
        here = {"ROOFLANE_TRAITS": self.path("traits")}
        brief = ["calibrate", "--threads", "1", "--seconds", "0.01"]
        self.assertRegex(self.succeed("doctor"), r"(?m)^traits +derived; storing is off")
        self.assertRegex(self.succeed("doctor", env=here),
                         r"(?m)^traits +derived; `rooflane calibrate` measures them$")
        self.assertRegex(self.succeed(*brief), r"(?m)^not stored: ")
        self.assertRegex(self.succeed(*brief, env=here), rf"(?m)^stored in {self.path('traits')}$")
        self.assertRegex(self.succeed("doctor", env=here),
                         r"(?m)^traits +measured (just now|\d+ minutes? ago), \S+/traits$")
        found = json.loads(self.succeed("doctor", "--json", env=here))["traits"]
        self.assertEqual((found["origin"], found["problem"]), ("measured", None))
        # Stored already: nothing is measured, nothing printed.
        self.assertEqual(self.succeed("calibrate", "--if-missing", env=here), "")
        self.refuse(2, ["--threads '0'"], "calibrate", "--threads", "0")
        self.refuse(2, ["--seconds 'no'"], "calibrate", "--seconds", "no")

    def test_a_broken_calibration_is_named_by_doctor_and_written_anew(self):
        here = {"ROOFLANE_TRAITS": self.path("traits")}
        with open(self.path("traits"), "w", encoding="utf-8") as file:
            file.write("rooflane-traits 1\nregion soon\nend\n")
        self.assertRegex(self.succeed("doctor", env=here),
                         r"(?m)^traits +derived, because \S+ cannot be used: line 2: region 'soon':"
                         r" a number of at least 0; `rooflane calibrate` writes it again$")
        self.succeed("calibrate", "--if-missing", "--threads", "1", "--seconds", "0.01", env=here)
        self.assertRegex(self.succeed("doctor", env=here),
                         r"(?m)^traits +measured (just now|\d+ minutes? ago), ")

    def test_constants_are_learned_from_times_that_a_file_keeps(self):
        here = {"ROOFLANE_TRAITS": self.path("traits")}
        self.succeed("calibrate", "--threads", "1", "--seconds", "0.01", env=here)
        times = self.path("times.csv")
        learn = ["calibrate", "--learn", "--threads", "1"]
        out = self.succeed(*learn, "--seconds", "1.5", "--times", times, env=here)
        self.assertRegex(out, r"(?m)^gemm: fitted to \d+ problems; mean regret of \d+ unseen ")
        self.assertRegex(out, r"(?m)^(stored in|not stored: nothing was gained beyond doubt)")
        once = self.succeed(*learn, "--replay", times, env=here)
        self.assertEqual(once, self.succeed(*learn, "--replay", times, env=here))
        self.assertIn("constants", json.loads(
            self.succeed(*learn, "--replay", times, "--json", env=here))["traits"])
        # Pieces of a machine's times are one machine's; another machine's are told apart.
        self.assertNotIn("several machines",
                         self.succeed(*learn, "--replay", times, "--replay", times, env=here))
        other = self.path("other.csv")
        with open(times, encoding="utf-8") as file:
            text = file.read()
        with open(other, "w", encoding="utf-8") as file:
            file.write(re.sub(r"(?m)^# machine .*", "# machine another", text))
        self.assertIn("measured on another machine",
                      self.succeed(*learn, "--replay", other, env=here))
        self.assertIn("several machines",
                      self.succeed(*learn, "--replay", times, "--replay", other, env=here))

    def test_what_does_not_go_with_learning_is_refused(self):
        times = self.path("times.csv")
        with open(times, "w", encoding="utf-8") as file:
            file.write("variant,math,isa,threads,problem,ns,tuning\n")
        learn = ["calibrate", "--learn", "--threads", "1"]
        self.refuse(2, ["--times belongs to --learn"], "calibrate", "--times", times)
        self.refuse(2, ["--if-missing"], *learn, "--if-missing")
        self.refuse(2, ["--replay"], *learn, "--replay", times, "--times", times)
        self.refuse(2, ["has no traits"], *learn, "--replay", times)
        self.refuse(2, ["cannot be read"], *learn, "--replay", self.path("none.csv"))

    def test_the_slug_is_a_folder_name(self):
        slug = self.succeed("doctor", "--slug")
        self.assertRegex(slug, r"\A[a-z0-9]+(-[a-z0-9]+)*\n\Z")


class Run(CommandLine):
    def test_gemm_on_own_arrays(self):
        self.gemm_arrays()
        expected = matmul(self.a, self.b, 3, 6, 4)
        for variant in ["scalar", "blas", "hwy"]:
            with self.subTest(variant):
                self.assertEqual(self.succeed("run", "gemm", "-v", variant, "--in", "a=a.npy",
                                              "--in", "b=b.npy", "--out", "c=c.npy"), "")
                self.assertEqual(read_npy(self.path("c.npy")), ((3, 6), "<f4", expected))

    def test_flags_and_c0_and_the_batch_axis(self):
        self.gemm_arrays()
        self.write("bt.npy", npy("<f4", (1, 6, 4), floats(
            [self.b[p * 6 + j] for j in range(6) for p in range(4)])))
        self.write("a1.npy", npy("<f4", (1, 3, 4), floats(self.a)))
        self.write("c0.npy", npy("<f4", (3, 6), floats([2.0] * 18)))
        self.succeed("run", "gemm", "-v", "hwy", "--params", "trans_b=1,alpha=2,beta=0.5", "--in",
                     "a=a1.npy", "--in", "b=bt.npy", "--in", "c0=c0.npy", "--out", "c=c.npy")
        shape, _, values = read_npy(self.path("c.npy"))
        self.assertEqual(shape, (1, 3, 6))
        self.assertEqual(values, [2 * x + 1 for x in matmul(self.a, self.b, 3, 6, 4)])

    def test_float64_float16_and_fortran_order(self):
        self.gemm_arrays()
        expected = matmul(self.a, self.b, 3, 6, 4)
        columns = [self.a[i * 4 + p] for p in range(4) for i in range(3)]
        arrays = {"float64": npy("<f8", (3, 4), struct.pack("<12d", *self.a)),
                  "float16": npy("<f2", (3, 4), struct.pack("<12e", *self.a)),
                  "fortran": npy("<f4", (3, 4), floats(columns), order="True")}
        for name, content in arrays.items():
            with self.subTest(name):
                self.write("x.npy", content)
                status, _, err = self.call("run", "gemm", "-v", "scalar", "--in", "a=x.npy", "--in",
                                           "b=b.npy", "--out", "c=c.npy")
                self.assertEqual(status, 0, err)
                self.assertEqual(name != "fortran", f"note: --in a: {name}" in err, err)
                self.assertEqual(read_npy(self.path("c.npy"))[2], expected)

    def test_leading_axes_are_rows(self):
        self.write("x.npy", npy("<f4", (2, 3, 4), floats([0.0] * 24)))
        self.succeed("run", "softmax", "-v", "hwy", "--in", "x=x.npy", "--out", "y=y.npy")
        self.assertEqual(read_npy(self.path("y.npy")), ((2, 3, 4), "<f4", [0.25] * 24))
        self.write("x.npy", npy("<f4", (4,), floats([0.0] * 4)))
        self.succeed("run", "softmax", "-v", "scalar", "--in", "x=x.npy", "--out", "y=y.npy")
        self.assertEqual(read_npy(self.path("y.npy"))[0], (4,))

    def test_ids_may_be_int64_and_are_refused_outside_their_range(self):
        self.gemm_arrays()
        self.write("table.npy", npy("<f4", (3, 4), floats(self.a)))
        run = ["run", "embed", "-v", "hwy", "--in", "table=table.npy", "--in", "ids=ids.npy",
               "--out", "y=y.npy"]
        self.write("ids.npy", npy("<i8", (2,), struct.pack("<2q", 2, 0)))
        status, _, err = self.call(*run)
        self.assertEqual(status, 0, err)
        self.assertIn("note: --in ids: int64 converted to int32", err)
        expected = ((2, 4), "<f4", self.a[8:] + self.a[:4])
        self.assertEqual(read_npy(self.path("y.npy")), expected)
        for id, word in ((3, "--in ids: ids[1] is 3; allowed are 0 to 2 (vocab=3)"),
                         (-1, "--in ids: ids[1] is -1"), (1 << 40, "1 is 1099511627776; int32")):
            self.write("ids.npy", npy("<i8", (2,), struct.pack("<2q", 2, id)))
            self.refuse(2, [word], *run)
        self.write("ids.npy", npy("<f4", (2,), floats([0.0, 1.0])))
        self.refuse(2, ["float32 cannot become int32; allowed is int32 or int64"], *run)
        self.assertEqual(read_npy(self.path("y.npy")), expected)

    def test_bad_arrays_are_refused_and_the_output_stays_as_it_was(self):
        self.gemm_arrays()
        good = self.read("a.npy")
        data = floats(self.a)
        bad = {
            "missing": None,
            "truncated": good[:-5],
            "ends inside its header": good[:20],
            "not an .npy file": b"hello, I am no array",
            "version 9.0": b"\x93NUMPY\x09\x00" + good[8:],
            "big-endian": npy(">f4", (3, 4), data),
            "complex": npy("<c8", (3, 4), data * 2),
            "Python objects": npy("|O", (3, 4), data),
            "int32 cannot become float32": npy("<i4", (3, 4), data),
            "size is wrong": npy("<f4", (3, 3), data),
            "larger than any array": npy("<f4", (1 << 62, 1 << 62), data),
            "negative": npy("<f4", (-3, -4), data),
        }
        self.write("c.npy", b"precious")
        for word, content in bad.items():
            with self.subTest(word):
                if content is not None:
                    self.write("bad.npy", content)
                name = "none.npy" if content is None else "bad.npy"
                words = ["--in a", name] + ([word] if content is not None else ["No such file"])
                self.refuse(2, words, "run", "gemm", "-v", "scalar", "--in", f"a={name}", "--in",
                            "b=b.npy", "--out", "c=c.npy")
                self.assertEqual(self.read("c.npy"), b"precious")

    def test_shapes_that_disagree_name_both_arrays_and_axes(self):
        self.gemm_arrays()
        self.write("b.npy", npy("<f4", (5, 6), floats([0.0] * 30)))
        common = ["run", "gemm", "-v", "scalar", "--in", "a=a.npy", "--in", "b=b.npy", "--out",
                  "c=c.npy"]
        self.refuse(2, ["k", "axis 1 of a [3,4]", "axis 0 of b [5,6]"], *common)
        self.write("b.npy", npy("<f4", (4, 6), floats(self.b)))
        self.refuse(2, ["m is 9", "axis 0 of a [3,4]"], *common, "--params", "m=9")
        self.write("b.npy", npy("<f4", (4,), floats([0.0] * 4)))
        self.refuse(2, ["b [4] has 1 axes"], *common)

    def test_names_and_parameters_that_do_not_exist(self):
        self.gemm_arrays()
        inputs = ["--in", "a=a.npy", "--in", "b=b.npy"]
        output = ["--out", "c=c.npy"]
        run = ["run", "gemm", "-v", "scalar"]
        self.refuse(2, ["'gem'", "nearest is 'gemm'"], "run", "gem", "-v", "scalar", *inputs,
                    *output)
        self.refuse(2, ["'scalr'", "nearest is 'scalar'"], "run", "gemm", "-v", "scalr", *inputs,
                    *output)
        self.refuse(2, ["-v", "scalar"], "run", "gemm", *inputs, *output)
        self.refuse(2, ["KERNEL"], "run", *inputs, *output)
        self.refuse(2, ["'alfa'", "'alpha'"], *run, "--params", "alfa=2", *inputs, *output)
        self.refuse(2, ["beta=x"], *run, "--params", "beta=x", *inputs, *output)
        self.refuse(2, ["alpha"], *run, "--params", "alpha", *inputs, *output)
        self.refuse(2, ["c0"], *run, *inputs, "--in", "c0=a.npy", *output)
        self.refuse(2, ["input c0", "missing"], *run, "--params", "beta=1", *inputs, *output)
        self.refuse(2, ["input b", "missing"], *run, "--in", "a=a.npy", *output)
        self.refuse(2, ["'a' twice"], *run, *inputs, "--in", "a=a.npy", *output)
        self.refuse(2, ["NAME=FILE"], *run, "--in", "a.npy", *output)
        self.refuse(2, ["output", "'d'", "'c'"], *run, *inputs, "--out", "d=c.npy")
        self.refuse(2, ["--out is missing"], *run, *inputs)
        self.assertFalse(os.path.exists(self.path("c.npy")))

    def test_an_axis_of_a_size_that_is_not_allowed_is_named(self):
        self.write("x.npy", npy("<f4", (3, 0), b""))
        self.refuse(2, ["axis 1 of x [3,0]", "cols=0"], "run", "softmax", "-v", "scalar", "--in",
                    "x=x.npy", "--out", "y=y.npy")

    def test_openblas_runs_at_the_core_type_that_workers_get(self):
        best = re.search(r"OPENBLAS_CORETYPE=(\S+)", self.succeed("doctor"))
        if not best or platform.machine() != "x86_64":
            self.skipTest(skip.reason("no OpenBLAS with core types",
                                      "libopenblas-openmp-dev"))
        self.gemm_arrays()
        status, _, err = self.call(
            "run", "gemm", "-v", "blas", "--in", "a=a.npy", "--in", "b=b.npy", "--out", "c=c d.npy",
            env={"OPENBLAS_CORETYPE": "Nehalem", "OPENBLAS_VERBOSE": "2"})
        self.assertEqual(status, 0, err)
        cores = re.findall(r"(?m)^Core: (\S+)$", err)
        self.assertEqual(cores[-1], best[1], err)
        self.assertEqual(read_npy(self.path("c d.npy"))[2], matmul(self.a, self.b, 3, 6, 4))

    def test_outputs_that_cannot_be_written(self):
        self.gemm_arrays()
        run = ["run", "gemm", "-v", "scalar", "--in", "a=a.npy", "--in", "b=b.npy"]
        self.refuse(2, ["--out c", "none/c.npy"], *run, "--out", "c=none/c.npy")
        self.refuse(2, ["--out c", "it is a folder"], *run, "--out", "c=.")
        self.refuse(2, ["--out c", "/proc/c.npy"], *run, "--out", "c=/proc/c.npy")
        # An input may be the output: it is read before it is replaced.
        self.succeed(*run, "--out", "c=a.npy")
        self.assertEqual(read_npy(self.path("a.npy"))[0], (3, 6))
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["a.npy", "b.npy"])


class Options(CommandLine):
    def test_values_of_common_options(self):
        verify = ["verify", "--shape", SMALL]
        for threads in ["0", "x", "-1", "1.5", "1,,2", "99999999999999999999"]:
            with self.subTest(threads):
                self.refuse(2, ["--threads"], *verify, "--threads", threads)
        self.refuse(3, ["--threads 9999", "CPUs"], *verify, "--threads", "9999")
        target = json.loads(self.succeed("doctor", "--json"))["isa_targets"][0]["name"]
        self.refuse(2, [f"'{target}X'", f"nearest is '{target}'"], *verify, "--isa", f"{target}X")
        self.refuse(2, ["'tf32'", "valid: fp32, 3xtf32"], *verify, "--math", "tf32")
        self.refuse(2, ["'tf32'", "fp32, 3xtf32"], "bench", "--shape", SMALL, "--math", "tf32")
        self.refuse(2, ["--seed", "x"], *verify, "--seed", "x")
        self.refuse(2, ["--timeout", "0"], *verify, "--timeout", "0")
        self.refuse(2, ["--timeout", "at most"], *verify, "--timeout", "1e300")
        self.refuse(2, ["--cl-device", "x"], *verify, "--cl-device", "x")
        self.refuse(3, ["--cl-device 99"], *verify, "--cl-device", "99")
        self.refuse(2, ["--tuning", "VARIANT:key=value"], *verify, "--tuning", "mc=96")
        self.refuse(2, ["--tuning", "'hwyy'", "'hwy'"], *verify, "--tuning", "hwyy:mc=96")
        self.refuse(2, ["--tuning", "'zz'"], *verify, "--tuning", "hwy:zz=96")
        self.refuse(2, ["--kernel"], "verify", "-k", "gemm,")
        self.refuse(2, ["'gemn'", "'gemm'"], "verify", "-k", "gemn")

    def test_an_argument_that_is_wrong_beats_one_that_cannot_be_served(self):
        self.refuse(2, ["--threads"], "verify", "--cl-device", "99", "--shape", SMALL, "--threads",
                    "0")
        self.refuse(2, ["--shape"], "verify", "--cl-device", "99", "--shape", "gemm:m=1")
        self.refuse(2, ["--csv"], "bench", "--threads", "9999", "--shape", SMALL, "--csv", "no/x")
        huge = "gemm:m=1000000,n=1000000,k=1000000"
        self.refuse(2, ["'scalr'"], "verify", "--shape", huge, "-v", "scalr")

    def test_shapes(self):
        for shape in ["gemm", "gemm:", "gemm:m=1", "gemm:m=1,n=1,k=x", "gemm:m=1,n=1,k=1,z=1",
                      "gemm:m=1,n=1,k=-1", "gemm:m=1,m=1,n=1,k=1", "gemn:m=1,n=1,k=1",
                      "gemm:m=4..1*2,n=1,k=1", "gemm:m=1..4,n=1,k=1", "softmax:rows=1,cols=0",
                      "gemm:m=99999999999999999999,n=1,k=1",
                      "gemm:m=4503599627370496,n=4503599627370496,k=4503599627370496",
                      "attention:batch=1,heads=3,kv_heads=2,q_len=1,kv_len=1,head_dim=1"]:
            with self.subTest(shape):
                self.refuse(2, ["--shape"], "verify", "--shape", shape)
        self.refuse(3, ["MiB"], "verify", "--shape", "gemm:m=1000000,n=1000000,k=1000000")

    def test_tunings_that_fit_no_device_are_arguments(self):
        if missing := skip.no_device(self.rooflane):
            self.skipTest(missing)
        for kernel, tuning in [("softmax", "v=3"), ("layernorm", "lx=3"), ("gemm", "bk=3"),
                               ("attention", "bk=7,tk=2")]:
            for verb in ["verify", "bench"]:
                with self.subTest(kernel, verb=verb):
                    self.refuse(2, ["--tuning opencl:", tuning.split(",")[0], kernel], verb, "-k",
                                kernel, "-v", "opencl", "--tuning", f"opencl:{tuning}")
        self.write("x.npy", npy("<f4", (3, 4), floats([0.5] * 12)))
        self.refuse(2, ["--tuning opencl:v=3"], "run", "softmax", "-v", "opencl", "--tuning",
                    "opencl:v=3", "--in", "x=x.npy", "--out", "y=y.npy")

    def test_blas_libraries(self):
        self.write("text.so", b"no library")
        verify = ["verify", "-v", "blas", "--shape", SMALL, "--threads", "1"]
        for value in ["text.so", "./text.so", "mine=text.so", "none.so", "mine=/none.so"]:
            with self.subTest(value):
                self.refuse(2, ["--blas"], *verify, "--blas", value)
        self.refuse(2, ["--blas", "a-z"], *verify, "--blas", "Mine=text.so")
        self.refuse(2, ["--blas"], *verify, "--blas", "mine=")

    def test_a_named_blas_library_becomes_a_variant(self):
        root = os.environ.get("QEMU_LD_PREFIX", "")  # of the libraries of a program for another CPU
        for library in glob.glob(f"{root}/usr/lib/*/openblas-*/libopenblas.so.0"):
            out = self.succeed("verify", "-v", "blas-mine", "--blas", f"mine={library}", "--shape",
                               SMALL, "--threads", "1")
            self.assertIn("PASSED", out)
            self.assertIn("variant=blas-mine", out)
            self.assertIn("blas-mine", self.succeed("list", "--blas", f"mine={library}"))
            self.succeed("verify", "-v", "blas", "--blas", library, "--shape", SMALL)


class Inputs(CommandLine):
    def test_inputs_and_reference(self):
        out = self.succeed("inputs", "gemm", "--shape", SMALL, "--seed", "3", "--out", "new/folder")
        self.assertEqual(out.split(), [f"new/folder/{n}.npy" for n in ["a", "b", "c_reference"]])
        shape_a, _, a = read_npy(self.path("new/folder/a.npy"))
        _, _, b = read_npy(self.path("new/folder/b.npy"))
        shape, descr, c = read_npy(self.path("new/folder/c_reference.npy"))
        self.assertEqual((shape_a, shape, descr), ((1, 5, 3), (1, 5, 7), "<f8"))
        for got, expected in zip(c, matmul(a, b, 5, 7, 3)):
            self.assertAlmostEqual(got, expected, places=14)
        self.succeed("run", "gemm", "-v", "hwy", "--in", "a=new/folder/a.npy", "--in",
                     "b=new/folder/b.npy", "--out", "c=c.npy")
        for got, expected in zip(read_npy(self.path("c.npy"))[2], c):
            self.assertAlmostEqual(got, expected, places=5)

    def test_bad_requests(self):
        self.refuse(2, ["KERNEL"], "inputs", "--shape", SMALL, "--out", "x")
        self.refuse(2, ["--shape"], "inputs", "gemm", "--out", "x")
        self.refuse(2, ["--shape"], "inputs", "softmax", "--shape", SMALL, "--out", "x")
        self.refuse(2, ["--shape", "ranges"], "inputs", "gemm", "--shape", "gemm:m=1..2+1,n=1,k=1",
                    "--out", "x")
        self.refuse(2, ["--out"], "inputs", "gemm", "--shape", SMALL)
        self.refuse(2, ["--seed"], "inputs", "gemm", "--shape", SMALL, "--seed", "-", "--out", "x")
        self.write("file", b"")
        self.refuse(2, ["--out 'file'"], "inputs", "gemm", "--shape", SMALL, "--out", "file")
        self.refuse(3, ["MiB", "held 3 times"], "inputs", "gemm", "--shape",
                    "gemm:m=1000000,n=1000000,k=1000", "--out", "x")
        self.assertEqual(os.listdir(self.folder.name), ["file"])


class Streams(CommandLine):
    def test_a_full_disk_behind_standard_output_is_an_error(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([self.rooflane, "list"], stdout=full, stderr=subprocess.PIPE,
                                    text=True, timeout=PATIENCE)
        self.assertEqual(result.returncode, 2)
        self.assertIn("standard output", result.stderr)

    def test_no_colour_outside_a_terminal(self):
        self.assertNotIn("\033", self.succeed("verify", "--shape", SMALL, "-v", "scalar"))

    def test_the_worker_speaks_its_protocol(self):
        requests = json.dumps({"op": "open", "case": f"{SMALL} variant=scalar"}) + "\n"
        lines = self.succeed("worker", stdin=requests).splitlines()
        self.assertEqual(json.loads(lines[0])["rooflane_worker"], 1)
        self.assertTrue(json.loads(lines[1])["ok"])


if __name__ == "__main__":
    main()

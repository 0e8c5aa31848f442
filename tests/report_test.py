#!/usr/bin/env python3
"""The report's pages and picture, and what results/ holds:
report_test.py REPORT.PY RESULTS_FOLDER ROOFLANE.

Standard library only; report.py makes its own environment. Where PyPI cannot be reached, the tests
that need it are skipped.
"""
import csv
import glob
import html.parser
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import skip

REPORT, RESULTS, ROOFLANE = "", "", ""
OFFLINE = False
NASTY = [
    {"schema_version": "1", "kernel": "gemm", "variant": "scalar", "shape": "m=1,n=2",
     "status": "PASSED", "reason": "", "threads": "1", "flops": "100", "ai": "0.5", "gflops": "2",
     "p50_ns": "50"},
    {"schema_version": "1", "kernel": "gemm", "variant": "odd@\"v\"", "shape": "m=1,n=2",
     "status": "FAILED",
     "reason": "a, \"b\"\nnext <script>alert(1)</script></table> & <b>bold</b>", "threads": "",
     "flops": "", "ai": "", "gflops": "", "p50_ns": ""},
    {"schema_version": "1", "kernel": "</script><img src=https://example.org/x>",
     "variant": "hwy", "shape": "", "status": "PASSED", "reason": "", "threads": "2",
     "flops": "200", "ai": "4", "gflops": "9", "p50_ns": "22"}]


def report(*arguments):
    return subprocess.run([sys.executable, REPORT, "--rooflane", ROOFLANE, *arguments],
                          capture_output=True, text=True)


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def in_picture(rows):
    """How many points the picture shows of a machine's rows: those at the most threads, with the
    variants that run a kernel only on one; of a device where the CPU has none."""
    threads = {}
    for row in rows:
        if row["threads"]:
            threads.setdefault((row["kernel"], row["variant"]), set()).add(int(row["threads"]))
    if not threads:
        return len(rows)
    most = max(map(max, threads.values()))
    ran_on_most = {kernel for (kernel, _), counts in threads.items() if most in counts}
    return sum(bool(row["threads"]) and (int(row["threads"]) == most or (
        threads[row["kernel"], row["variant"]] == {1} and row["kernel"] in ran_on_most))
               for row in rows)


def same(shown, cell):
    """Whether a cell of the page says what one of the file does. JSON has no infinite numbers: the
    page leaves them empty."""
    try:
        return shown == cell or float(shown or math.inf) == float(cell)
    except ValueError:
        return False


class Page(html.parser.HTMLParser):
    """Rows of the table and every attribute that makes a browser fetch."""

    def __init__(self, text):
        super().__init__()
        self.head, self.rows, self.fetched, self.cell, self.tags = [], [], [], None, []
        self.table = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.fetched += [value for name, value in attrs
                         if name in ("src", "srcset", "href", "data", "action", "poster")
                         and not (value or "").startswith("#")]
        if tag == "table":
            self.table = dict(attrs).get("id")
        if self.table != "rows":
            return
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.cell = ""

    def handle_data(self, data):
        if self.cell is not None:
            self.cell += data

    def handle_endtag(self, tag):
        if tag == "table":
            self.table = None
        if tag in ("td", "th") and self.cell is not None:
            (self.rows[-1] if tag == "td" else self.head).append(self.cell)
            self.cell = None


class Scratch(unittest.TestCase):
    """A folder of its own for each test, and files in it."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, rows):
        with open(self.path(name), "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list({**NASTY[0], **(rows[0] if rows else {})}))
            writer.writeheader()
            writer.writerows(rows)
        return self.path(name)


class ReportTest(Scratch):
    def setUp(self):
        if OFFLINE:
            self.skipTest(skip.reason("PyPI cannot be reached",
                                      "from PyPI: altair vl-convert-python"))
        super().setUp()

    def check(self, files):
        made = report(*files, "--html", self.path("p.html"), "--svg", self.path("p.svg"))
        self.assertEqual(made.returncode, 0, made.stderr)
        with open(self.path("p.html"), encoding="utf-8", newline="") as file:
            text = file.read()
        page = Page(text)
        shown = [dict(zip(page.head, cells)) for cells in page.rows if cells]
        rows = [row for name in files for row in read(name)]
        self.assertEqual(len(shown), len(rows))
        named = ("kernel", "variant", "shape")
        alike = {}  # few rows have the same three, so each is compared with few
        for one in shown:
            alike.setdefault(tuple(one.get(k, "") for k in named), []).append(one)
        for row in rows:
            self.assertTrue(any(all(same(one.get(k, ""), v) for k, v in row.items())
                                for one in alike.get(tuple(row[k] for k in named), [])), row)
        self.assertEqual(page.fetched, [])
        self.assertNotIn("link", page.tags)
        self.assertNotIn("img", page.tags)
        self.assertIsNone(re.search(r"@import|url\(\s*['\"]?http", text.split("</style>")[0]))
        self.assertIn("default-src 'none'", text)
        root = xml.etree.ElementTree.parse(self.path("p.svg")).getroot()
        self.assertTrue(root.tag.endswith("}svg"))
        marks = [mark for group in root.iter()
                 if "mark-symbol role-mark" in group.get("class", "") for mark in group]
        machines = {}
        for name in files:
            of_machine = machines.setdefault(os.path.dirname(name), [])
            of_machine += [r for r in read(name)
                           if r["status"] in ("PASSED", "INACCURATE")
                           and float(r["gflops"] or 0) > 0]
        self.assertEqual(len(marks), sum(map(in_picture, machines.values())))

    def test_every_row_of_a_real_run_is_on_the_page_and_in_the_picture(self):
        files = [f for f in sorted(glob.glob(os.path.join(RESULTS, "*", "*.csv")))
                 if not f.endswith(".samples.csv") and "gflops" in read(f)[0]]
        self.assertTrue(files)
        self.check(files)

    def test_odd_cells_are_shown_as_text(self):
        self.check([self.write("nasty.csv", NASTY)])

    def test_empty_and_all_failed_files_make_pages(self):
        self.check([self.write("empty.csv", []), self.write("failed.csv", NASTY[1:2])])

    def machine(self, rows):
        """What the page knows of a file with these rows."""
        return results.read_all(pathlib.Path(ROOFLANE), [self.write("rows.csv", rows)])[0]

    def test_ratios_are_formed_within_one_cache_mode_and_thread_count(self):
        def row(variant, threads, cache, ns, library=""):
            return {**NASTY[0], "variant": variant, "threads": threads, "cache": cache,
                    "p50_ns": ns, "library": library}

        machine = self.machine([
            row("scalar", "1", "warm", "100"), row("blas", "1", "warm", "20", "X 1"),
            row("blas", "2", "warm", "10", "X 1"), row("hwy", "1", "warm", "25"),
            row("hwy", "2", "warm", "5"), row("hwy@old", "2", "warm", "1", ""),
            row("scalar", "1", "cold", "400"), row("hwy", "2", "cold", "40")])
        found = {}
        for group in machine.groups:
            for line in group.lines:
                found[line.row["cache"], group.threads, line.row["variant"]] = tuple(
                    figure and round(figure.value, 9)
                    for figure in (line.over_scalar, line.over_best_peer))
        self.assertEqual(found["warm", "1", "hwy"], (4, 0.8))
        self.assertEqual(found["warm", "2", "hwy"], (20, 2))
        self.assertEqual(found["warm", "2", "scalar"], (1, 0.1))
        self.assertEqual(found["cold", "2", "hwy"], (10, None))

    def test_the_page_begins_with_what_to_use(self):
        def row(variant, shape, ns, library="", level="L2"):
            return {**NASTY[0], "variant": variant, "shape": shape, "p50_ns": ns,
                    "library": library, "roof_level": level, "roof_pct": "40"}

        name = self.write("rows.csv", [
            row("hwy", "m=1", "10"), row("blas", "m=1", "25", "X 1"),
            row("hwy", "m=2", "10"), row("blas", "m=2", "40", "X 1"),
            row("hwy", "m=3", "30"), row("blas", "m=3", "10", "X 1"),
            row("hwy", "m=4", "10", level="memory")])
        made = report(name, "--html", self.path("p.html"))
        self.assertEqual(made.returncode, 0, made.stderr)
        with open(self.path("p.html"), encoding="utf-8") as file:
            text = file.read()
        cells = [re.findall("<td>(.*?)</td>", line) for line in
                 re.findall("<tr>(<td>.*?)</tr>", text.split('id="answer"')[1].split("<h2")[0])]
        self.assertEqual(cells, [
            ["gemm", "L2", "1 thread", "hwy", "2 of 3", "1.49× [1.49, 1.49]", "1.49× [1.49, 1.49]",
             "40 (40)", "blas at m=3 (3.00×)"],
            ["gemm", "memory", "1 thread", "hwy", "1 of 1", "", "", "40", ""]])
        self.assertLess(text.index('id="answer"'), text.index('class="chart"'))

    def test_steps_of_models_have_a_table_of_their_own(self):
        step = {**NASTY[0], "preset": "block", "step": "run/linear", "calls": "2",
                "share_pct": "60", "roof_pct": "50", "bound": "compute", "p50_ns": "3e6"}
        whole = {**step, "kernel": "model", "step": "run", "share_pct": "100", "p50_ns": "1e7"}
        report(self.write("models.csv", [step, whole]), "--html", self.path("p.html"))
        with open(self.path("p.html"), encoding="utf-8") as file:
            text = file.read().split('<h2 id="models">')[1].split("<h2")[0]
        self.assertIn("<td>run</td><td>linear</td><td>gemm</td><td>scalar</td><td>2</td>"
                      "<td>6</td><td>60.0</td><td>50.0</td><td>compute</td>", text)
        self.assertIn("<td>run</td><td>whole</td>", text)

    def test_without_the_program_it_says_so(self):
        made = subprocess.run([sys.executable, REPORT, "--rooflane", self.path("none"), "--html",
                               self.path("x.html"), self.write("rows.csv", NASTY)],
                              capture_output=True, text=True)
        self.assertEqual(made.returncode, 3)
        self.assertIn("--rooflane", made.stderr)
        self.assertEqual(len(made.stderr.splitlines()), 1, made.stderr)

    def test_a_ceiling_is_drawn_once_memory_as_at_its_largest_footprint(self):
        def row(level, footprint, peak):
            return {**NASTY[0], "roof_level": level, "bytes": str(footprint),
                    "peak_gb_s": str(peak), "peak_gflops": "100"}

        first = self.write("first.csv", [row("L2", 1e5, 300), row("L2", 2e5, 280),
                                         row("memory", 1e8, 90), row("memory", 1e9, 40)])
        second = self.write("second.csv", [row("L2", 1e5, 310), row("memory", 1e9, 42)])
        (machine,) = results.read_all(pathlib.Path(ROOFLANE), [first, second])
        self.assertEqual({(c.name, c.place): c.value for c in machine.ceilings},
                         {("FMA", "1 thread"): 100, ("L2", "1 thread"): 310,
                          ("memory", "1 thread"): 42})
        self.assertEqual(len(machine.ceilings), 3)

    def test_a_math_with_a_peak_of_its_own_has_a_ceiling_of_its_own(self):
        rows = [{**NASTY[0], "threads": "", "device": "GPU", "math": used, "peak_gflops": peak}
                for used, peak in (("fp32", "60"), ("3xtf32", "100"))]
        self.assertEqual({c.name: c.value for c in self.machine(rows).ceilings},
                         {"FMA": 60, "3xtf32": 100})

    def test_labels_of_close_bandwidths_stand_below_one_another(self):
        rows = [{**NASTY[0], "roof_level": level, "peak_gb_s": str(peak), "peak_gflops": "1000",
                 "bytes": "8"} for level, peak in (("L1", 400), ("L2", 390), ("L3", 385))]
        made = report(self.write("close.csv", rows), "--svg", self.path("p.svg"))
        self.assertEqual(made.returncode, 0, made.stderr)
        heights = {}
        for element in xml.etree.ElementTree.parse(self.path("p.svg")).getroot().iter():
            if element.text and "GB/s" in element.text and "transform" in element.attrib:
                y = re.search(r"translate\(\S+?,(\S+?)\)", element.attrib["transform"])[1]
                heights[element.text.split()[0]] = float(y)
        self.assertEqual(sorted(heights), ["L1", "L2", "L3"])
        self.assertGreater(heights["L2"], heights["L1"] + 11)
        self.assertGreater(heights["L3"], heights["L2"] + 11)

    def test_rungs_of_a_ladder_are_left_out_and_that_is_said(self):
        def row(tuning, ns):
            return {**NASTY[0], "variant": "hwy", "tuning": tuning, "p50_ns": ns}

        machine = self.machine([row("step=0", "10"), row("mc=96,kc=384", "20"), row("step=1", "5")])
        self.assertEqual([one["tuning"] for one in machine.rows], ["mc=96,kc=384"])
        self.assertTrue(any("2 rows of ladders" in note for note in machine.notes), machine.notes)

    def test_bad_input_exits_with_2_and_one_line(self):
        with open(self.path("other.csv"), "w", encoding="utf-8") as file:
            file.write("a,b\n1,2\n")
        good = self.write("good.csv", NASTY)
        for arguments in ([self.path("none.csv"), "--html", self.path("x")],
                          [self.path("other.csv"), "--html", self.path("x")], [good],
                          [good, "--html", self.path("no/folder/x")]):
            made = report(*arguments)
            self.assertEqual(made.returncode, 2, arguments)
            self.assertEqual(len(made.stderr.splitlines()), 1, made.stderr)


class ReadmeTest(Scratch):
    """A page of Markdown from made-up rows."""

    def row(self, variant, ns, library="", **more):
        return {**NASTY[0], "variant": variant, "p50_ns": str(ns), "library": library,
                "threads": "2", "cpu": "A CPU", "host": "secret-host", "preset": "",
                "roof_level": "L2", "roof_pct": "50", "build_commit": "abc", "git_dirty": "0",
                "run_id": "20260101T000000Z-0000", **more}

    def lines(self, *files, target="page.md"):
        made = report(*files, "--readme", self.path(target))
        self.assertEqual(made.returncode, 0, made.stderr)
        with open(self.path(target), encoding="utf-8") as file:
            return file.read().splitlines()

    def line(self, lines, start):
        (found,) = [line for line in lines if line.startswith(start)]
        return [cell.strip() for cell in found.strip("|").split("|")]

    def test_a_class_has_the_geometric_mean_and_the_least_ratio_to_the_best_peer(self):
        rows = []
        for shape, ours, best in (("m=1,n=1", 10, 80), ("m=2,n=2", 40, 20)):
            rows += [self.row("hwy", ours, shape=shape), self.row("x", best, "X 1", shape=shape),
                     self.row("y", 100, "Y 2", shape=shape), self.row("hwy@old", 1, shape=shape),
                     self.row("scalar", 1000, shape=shape, threads="1")]
        lines = self.lines(self.write("rows.csv", rows))
        self.assertEqual(self.line(lines, "| gemm | L2"),
                         ["gemm", "L2", "2 threads", "hwy", "1 of 2", "2.00 [2.00, 2.00]",
                          "2.00 [2.00, 2.00]", "50 (50)"])
        self.assertEqual(self.line(lines, "| `gemm:m=2,n=2`")[2], "x")
        self.assertTrue(any("`x` 2 (X 1); `y` 0 (Y 2)" in line for line in lines))

    def test_a_dirty_build_and_a_missing_context_are_told(self):
        name = self.write("rows.csv", [self.row("hwy", 1, git_dirty="1")])
        lines = self.lines(name)
        self.assertIn("- Build: commit `abc`, with uncommitted changes", lines)
        self.assertTrue(any("was not kept" in line for line in lines))
        with open(self.path("rows.json"), "w", encoding="utf-8") as file:
            json.dump({"context": {"arguments": []}}, file)
        self.assertFalse(any("was not kept" in line for line in self.lines(name)))

    def test_hosts_and_folders_stay_private(self):
        name = self.write("rows.csv", [self.row("hwy", 1)])
        with open(self.path("rows.json"), "w", encoding="utf-8") as file:
            json.dump({"context": {"machine": {"host": "secret-host"}, "arguments": [
                "--blas", "mine=/home/alice/libblas.so", "--csv", "/home/alice/a.csv",
                "--shape", "gemm:m=1,n=2"]}}, file)
        text = "\n".join(self.lines(name))
        self.assertIn("bench.sh --blas mine=.../libblas.so --shape gemm:m=1,n=2", text)
        for secret in ("alice", "secret", self.folder.name, os.path.basename(self.folder.name)):
            self.assertNotIn(secret, text)

    def test_it_is_a_page_whatever_the_rows(self):
        many = [self.row(variant, ns, library, kernel=f"kernel{kernel}", device=device,
                         threads="" if device else str(threads), math=used, shape=f"n={size}",
                         preset=f"kernel{kernel}-class{size}")
                for variant, ns, library in (("hwy", 2, ""), ("x", 3, "X 1"))
                for kernel in range(30) for size in range(5) for threads in (1, 2, 16)
                for device in ("", "one", "two", "three", "four") for used in ("fp32", "bf16")]
        for name, rows in (("many.csv", many), ("nasty.csv", NASTY), ("failed.csv", NASTY[1:2])):
            lines = self.lines(self.write(name, rows))
            self.assertLessEqual(len(lines), 60, name)
            self.assertNotIn("<", "".join(lines).replace("&lt;", ""))
        self.assertEqual(self.lines(self.path("many.csv"), target="again.md"),
                         self.lines(self.path("many.csv")))

    def test_samples_beside_the_rows_change_nothing(self):
        name = self.write("rows.csv", [self.row("hwy", 10), self.row("x", 30, "X 1")])
        before = self.lines(name)
        with open(f"{name}.samples.csv", "w", encoding="utf-8") as file:
            file.write("row,launch,round,ns,probe_ns\n")
            for slot in range(5):
                file.write(f"0,1,{slot},10,1\n1,1,{slot},99,1\n")
        self.assertEqual(self.lines(name), before)

    def test_several_machines_and_no_rows_are_refused(self):
        one = self.write("one.csv", [self.row("hwy", 1)])
        other = self.write("other.csv", [self.row("hwy", 1, cpu="Another")])
        for files in ([one, other], [self.write("empty.csv", [])]):
            made = report(*files, "--readme", self.path("page.md"))
            self.assertEqual(made.returncode, 2)
            self.assertEqual(len(made.stderr.splitlines()), 1, made.stderr)


class ResultsTest(Scratch):
    """What the tree keeps of runs: results/MACHINE/{RUN_ID.csv, RUN_ID.json, roofline.svg,
    README.md}. Runs of one's own lie there as well, unknown to git."""

    RUN = r"\d{8}T\d{6}Z-[0-9a-f]{4}"
    MOST_BYTES = 2_000_000

    def kept(self):
        """Machine -> the names of its files, as git knows them; in a tree without git those that a
        page speaks of."""
        try:
            listed = subprocess.run(["git", "ls-files", "-z", "."], cwd=RESULTS, text=True,
                                    capture_output=True)
            names = [name for name in listed.stdout.split("\0") if name]
        except OSError:
            names = []
        if not names:
            for page in glob.glob(os.path.join(RESULTS, "*", "README.md")):
                machine = os.path.basename(os.path.dirname(page))
                with open(page, encoding="utf-8") as file:
                    (run,) = set(re.findall(rf"({self.RUN})\.csv", file.read()))
                names += [os.path.join(machine, name) for name in
                          (f"{run}.csv", f"{run}.json", "roofline.svg", "README.md")]
        machines = {}
        for name in names:
            machine, _, file = name.partition(os.sep)
            # Not README.md of all machines, nor what other scripts keep: models/, low-precision/.
            of_a_run = file and os.sep not in file
            if os.path.exists(os.path.join(RESULTS, name)) and of_a_run:
                machines.setdefault(machine, set()).add(file)
        self.assertTrue(machines)
        return machines

    def test_a_machine_has_one_run_its_picture_and_its_page(self):
        total = 0
        for machine, names in self.kept().items():
            rows = [name for name in names if name.endswith(".csv")]
            self.assertEqual(len(rows), 1, f"{machine}: {names}")
            run = re.fullmatch(rf"({self.RUN})\.csv", rows[0])
            self.assertTrue(run, f"{machine}: {rows[0]}")
            self.assertLessEqual(names, {rows[0], f"{run[1]}.json", "roofline.svg", "README.md"})
            self.assertLessEqual({rows[0], "README.md"}, names)
            total += sum(os.path.getsize(os.path.join(RESULTS, machine, name)) for name in names)
        self.assertLessEqual(total, self.MOST_BYTES)

    def test_all_rows_of_a_machine_are_of_one_clean_commit(self):
        for machine, names in self.kept().items():
            (name,) = [name for name in names if name.endswith(".csv")]
            rows = read(os.path.join(RESULTS, machine, name))
            self.assertEqual({row["git_dirty"] for row in rows}, {"0"}, machine)
            self.assertEqual(len({row["build_commit"] for row in rows}), 1, machine)
            self.assertIn(name.removesuffix(".csv"), {row["run_id"] for row in rows})

    def test_a_page_is_what_the_script_makes_of_the_files_beside_it(self):
        for machine, names in self.kept().items():
            (name,) = [name for name in names if name.endswith(".csv")]
            made = report(os.path.join(RESULTS, machine, name), "--readme", self.path("made.md"))
            self.assertEqual(made.returncode, 0, made.stderr)
            with open(os.path.join(RESULTS, machine, "README.md"), "rb") as kept:
                with open(self.path("made.md"), "rb") as new:
                    self.assertEqual(kept.read().decode(), new.read().decode(), f"{machine}: "
                                     "remade by the command at its end")


if __name__ == "__main__":
    REPORT, RESULTS, ROOFLANE = map(os.path.abspath, sys.argv[1:4])
    sys.path.insert(0, os.path.dirname(os.path.abspath(REPORT)))
    from report_page import results  # found through the argument
    with tempfile.TemporaryDirectory() as scratch:
        probe = os.path.join(scratch, "empty.csv")
        with open(probe, "w", encoding="utf-8") as empty:
            empty.write("schema_version,kernel,variant,shape,status\n")
        done = report(probe, "--html", os.path.join(scratch, "page.html"))
        if skip.no_packages(done.returncode, done.stderr):
            OFFLINE = True
    skip.main(sys.argv[:1])

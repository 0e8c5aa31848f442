#!/usr/bin/env python3
"""The report page and picture: report_test.py REPORT.PY RESULTS_FOLDER.

Standard library only; report.py makes its own environment. Exits with 77 (skipped) where PyPI
cannot be reached.
"""
import csv
import glob
import html.parser
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

REPORT, RESULTS = "", ""
SKIPPED = 77
NASTY = [
    {"kernel": "gemm", "variant": "scalar", "shape": "m=1,n=2", "status": "PASSED", "reason": "",
     "threads": "1", "flops": "100", "ai": "0.5", "gflops": "2", "p50_ns": "50"},
    {"kernel": "gemm", "variant": "odd@\"v\"", "shape": "m=1,n=2", "status": "FAILED",
     "reason": "a, \"b\"\nnext <script>alert(1)</script></table> & <b>bold</b>", "threads": "",
     "flops": "", "ai": "", "gflops": "", "p50_ns": ""},
    {"kernel": "</script><img src=https://example.org/x>", "variant": "hwy", "shape": "",
     "status": "PASSED", "reason": "", "threads": "2", "flops": "200", "ai": "4", "gflops": "9",
     "p50_ns": "22"}]


def report(*arguments):
    return subprocess.run([sys.executable, REPORT, *arguments], capture_output=True, text=True)


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class Page(html.parser.HTMLParser):
    """Rows of the table and every attribute that makes a browser fetch."""

    def __init__(self, text):
        super().__init__()
        self.head, self.rows, self.fetched, self.cell, self.tags = [], [], [], None, []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.fetched += [value for name, value in attrs
                         if name in ("src", "srcset", "href", "data", "action", "poster")
                         and not (value or "").startswith("#")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.cell = ""

    def handle_data(self, data):
        if self.cell is not None:
            self.cell += data

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            (self.rows[-1] if tag == "td" else self.head).append(self.cell)
            self.cell = None


class ReportTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, rows):
        with open(self.path(name), "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(NASTY[0]))
            writer.writeheader()
            writer.writerows(rows)
        return self.path(name)

    def check(self, files):
        made = report(*files, "--html", self.path("p.html"), "--svg", self.path("p.svg"))
        self.assertEqual(made.returncode, 0, made.stderr)
        with open(self.path("p.html"), encoding="utf-8", newline="") as file:
            text = file.read()
        page = Page(text)
        shown = [dict(zip(page.head, cells)) for cells in page.rows if cells]
        rows = [row for name in files for row in read(name)]
        self.assertEqual(len(shown), len(rows))
        for row in rows:
            self.assertTrue(any(all(one[k] == v for k, v in row.items()) for one in shown), row)
        self.assertEqual(page.fetched, [])
        self.assertNotIn("link", page.tags)
        self.assertNotIn("img", page.tags)
        self.assertIsNone(re.search(r"@import|url\(\s*['\"]?http", text.split("</style>")[0]))
        self.assertIn("default-src 'none'", text)
        root = xml.etree.ElementTree.parse(self.path("p.svg")).getroot()
        self.assertTrue(root.tag.endswith("}svg"))
        marks = [e for e in root.iter() if e.get("aria-roledescription") == "point"]
        speeds = [r for r in rows if r["status"] == "PASSED" and float(r["gflops"] or 0) > 0]
        self.assertEqual(len(marks), len(speeds))

    def test_every_row_of_a_real_run_is_on_the_page_and_in_the_picture(self):
        files = [f for f in sorted(glob.glob(os.path.join(RESULTS, "*", "*.csv")))
                 if not f.endswith(".samples.csv") and "gflops" in read(f)[0]]
        self.assertTrue(files)
        self.check(files)

    def test_odd_cells_are_shown_as_text(self):
        self.check([self.write("nasty.csv", NASTY)])

    def test_empty_and_all_failed_files_make_pages(self):
        self.check([self.write("empty.csv", []), self.write("failed.csv", NASTY[1:2])])

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


if __name__ == "__main__":
    REPORT, RESULTS = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as scratch:
        probe = os.path.join(scratch, "empty.csv")
        with open(probe, "w", encoding="utf-8") as empty:
            empty.write("kernel,variant,shape,status\n")
        done = report(probe, "--html", os.path.join(scratch, "page.html"))
        if done.returncode == 3 and "PyPI cannot be reached" in done.stderr:
            print(done.stderr)
            sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=2)

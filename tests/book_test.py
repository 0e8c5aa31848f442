#!/usr/bin/env python3
"""The book and what stands behind its pages: book_test.py ROOFLANE SOURCE_DIR.

scripts/book.sh builds it, warnings being errors, where PyPI can be reached; what it and
check_links.py call an error is shown to them; page_tables.py finds the pages' figures in the rows,
and a figure that somebody typed.
"""
from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import skip

ROOFLANE, ROOT = Path(), Path()


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


class Folder(unittest.TestCase):
    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = Path(place.name)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


class Book(Folder):
    def test_it_is_built_without_a_warning_and_holds_every_page(self) -> None:
        book = self.folder / "book"
        done = run(ROOT / "scripts/book.sh", "--out", book)
        if done.returncode == 3:
            self.skipTest(skip.reason(done.stderr.strip().splitlines()[-1], "from PyPI: mkdocs"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout, f"book: {book.resolve() / 'index.html'}\n")
        index = (book / "index.html").read_text(encoding="utf-8")
        for page in (ROOT / "docs").glob("*.md"):
            with self.subTest(page.name):
                self.assertTrue((book / f"{page.stem}.html").is_file())
                self.assertIn(f'href="{page.stem}.html"', index)
        self.assertTrue((book / "tree/kernels/gemm/ladder.cpp.html").is_file())
        self.assertTrue((book / "search/search_index.js").is_file())

    def test_a_folder_of_something_else_is_left_alone(self) -> None:
        kept = self.write("mine.txt", "mine")
        done = run(ROOT / "scripts/book.sh", "--out", self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("holds something else than a book", done.stderr)
        self.assertTrue(kept.exists())

    def test_what_leads_nowhere_or_is_loaded_from_elsewhere_is_an_error(self) -> None:
        sys.path.insert(0, str(ROOT / "scripts"))
        import book
        self.write("other.html", '<h1 id="here">')
        self.write("index.html",
                   '<a href="other.html#here"></a><a href="https://example.org"></a>'
                   '<a href="gone.html"></a><a href="other.html#gone"></a>'
                   '<script src="https://example.org/a.js"></script>'
                   '<link rel="stylesheet" href="//example.org/a.css">')
        self.assertEqual(sorted(book.errors(self.folder)), [
            "index.html: gone.html: no such page or file",
            "index.html: loads //example.org/a.css",
            "index.html: loads https://example.org/a.js",
            "index.html: other.html#gone: no such anchor"])


class Links(Folder):
    def check(self, text: str) -> subprocess.CompletedProcess[str]:
        self.write("other.md", "# A heading: `code`\n")
        return run(sys.executable, ROOT / "scripts/check_links.py", self.write("page.md", text))

    def test_good_ones_and_what_is_code_pass(self) -> None:
        done = self.check("[a](other.md) [b](other.md#a-heading-code) [c](https://example.org/x)\n"
                          "```c\na[i](none)\n```\n")
        self.assertEqual((done.returncode, done.stdout),
                         (0, "the links of 1 pages lead somewhere\n"))

    def test_a_missing_file_or_heading_is_named(self) -> None:
        done = self.check("[a](gone.md) [b](other.md#gone)")
        self.assertEqual(done.returncode, 1)
        self.assertIn("page.md: gone.md: no such file\n", done.stdout)
        self.assertIn("page.md: other.md#gone: no such heading\n", done.stdout)


class Tables(Folder):
    def check(self, root: Path) -> subprocess.CompletedProcess[str]:
        return run(sys.executable, root / "scripts/page_tables.py", "--check", "--rooflane",
                   ROOFLANE)

    def copy_with(self, rows: str) -> None:
        """The script in a tree of its own, beside what `rows` matches of results/."""
        scripts = [ROOT / "scripts" / f"{name}.py"
                   for name in ("page_tables", "page_reference", "page_results", "command_pages",
                                "script_help")]
        for path in (*scripts, *(ROOT / "results").glob(rows)):
            copy = self.folder / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, copy)
            else:
                shutil.copy(path, copy)

    def test_figures_of_the_pages_are_those_of_the_rows(self) -> None:
        done = self.check(ROOT)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_rows_that_a_run_left_beside_the_kept_ones_are_not_read(self) -> None:
        self.copy_with("*/*.csv")
        self.copy_with("*/README.md")
        page = (ROOT / "docs/faq.md").read_text(encoding="utf-8")
        table, = re.findall(r"(?ms)^<!-- table: slowdown .*?^<!-- end -->$", page)
        self.write("docs/faq.md", f"{table}\n")
        machine = "results/amd-epyc-avx3-2c"
        for name in ("20990101T000000Z-0000.csv", "20990101T000000Z-0000.csv.samples.csv"):
            self.write(f"{machine}/{name}", "kernel,shape,threads,variant,p50_ns\n"
                                            "gemm,m=1,2,hwy,1\ngemm,m=1,2,blas-mkl,99\n")
        done = self.check(self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_figure_that_was_typed_is_found(self) -> None:
        self.copy_with("*/ladders")
        page = (ROOT / "docs/ladder-softmax.md").read_text(encoding="utf-8")
        typed, count = re.subn(r"(\d)\.\d\dx \[", r"\1.99x [", page, count=1)
        self.assertEqual(count, 1)
        self.write("docs/ladder-softmax.md", typed)
        done = self.check(self.folder)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^-.*\.99x \[")

    def test_schedules_that_this_build_would_refuse_are_counted(self) -> None:
        machine = "amd-epyc-zen-4-avx3-2c"
        self.copy_with(f"{machine}/models")
        page = (ROOT / "README.md").read_text(encoding="utf-8")
        table, = re.findall(rf"(?ms)^<!-- table: models {machine} -->$.*?^<!-- end -->$", page)
        self.write("README.md", f"{table}\n")
        rows = self.folder / f"results/{machine}/models/rows.csv"
        refused = int((re.findall(r"(\d+) of \d+ schedules", table) or ["0"])[0])
        text, count = re.subn(r"path=(\d),(?!\S*stream=)", r"gone=\1,",
                              rows.read_text(encoding="utf-8"), count=3)
        self.assertEqual(count, 3)
        rows.write_text(text, encoding="utf-8")
        done = self.check(self.folder)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, rf"(?m)^\+.* {refused + 3} of \d+ schedules have tunables "
                                      "that this build")


if __name__ == "__main__":
    ROOFLANE, ROOT = (Path(path).resolve() for path in sys.argv[1:3])
    skip.main([sys.argv[0]])

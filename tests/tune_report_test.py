"""Reports of a tuning run: the measures of impact and stability against cases done by hand, what
the text and the page say, and that no text of others gets out of its place."""
from __future__ import annotations

import html.parser
import re
import statistics
import sys
import tempfile
import unittest
from pathlib import Path

import skip
import tune_environment

tune_environment.enter()

from rooflane import drawing, report  # noqa: E402
from rooflane.report import sections  # noqa: E402
from rooflane.tuning import (  # noqa: E402
    Configuration,
    Cost,
    Exchange,
    Finalist,
    Neighbour,
    Outcome,
    Ratio,
    Space,
    Trial,
    Tunable,
    Verdict,
)

DEFAULT = {"path": 0, "mr": 4, "kc": 64}
EVIL = "<script>alert(1)</script> & \"x\" 'y' \x1b[31m]]>"


def trial(number: int, configuration: Configuration, value: float | None,
          outcome: Outcome = Outcome.CORRECT, reason: str = "", **more: object) -> Trial:
    """A trial with a ratio known to 1 %."""
    ratio = Ratio(value, value * 0.99, value * 1.01) if value else None
    return Trial(number, configuration, outcome, "tpe" if number else "seed", reason=reason,
                 ratio=ratio, ns=[value * 1e5] * 5 if value else [],
                 default_ns=[1e5] * 5 if value else [],
                 cost=Cost(propose=0.01, build=0.2, verify=0.1, time=0.19), **more)


TRIALS = [
    trial(0, DEFAULT, 1.0),
    trial(1, {"path": 0, "mr": 8, "kc": 64}, 0.8),
    trial(2, {"path": 1, "mr": 8, "kc": 128}, None, Outcome.CRASH, f"signal 11 {EVIL}"),
    trial(3, {"path": 0, "mr": 8, "kc": 128}, 0.5, note=f"mr clamped to 8 {EVIL}"),
    trial(4, {"path": 0, "mr": 4, "kc": 128}, 0.9),
    trial(5, {"path": 0, "mr": 16, "kc": 128}, None, Outcome.INCORRECT, "error 3"),
    trial(6, {"path": 0, "mr": 8, "kc": 256}, 0.6),
    trial(7, {"path": 1, "mr": 8, "kc": 128}, None, Outcome.CRASH, f"signal 11 {EVIL}"),
]


def space_of(meaning: str = "rows of a micro-tile") -> Space:
    return Space("gemm", "hwy", "gemm:m=64,n=64,k=64", "fp32", 1, "AVX3", "",
                 (Tunable("path", "0 unpacked, 1 packed", 0, 1, (0, 1), True),
                  Tunable("mr", meaning, 1, 16, (4, 8, 16)),
                  Tunable("kc", "depth of a block", 16, 4096, (64, 128, 256))),
                 DEFAULT, (), constraints=None, roof_ns=2e4)


def run_of(**more: object) -> report.Run:
    best = Finalist(TRIALS[3].configuration, Ratio(0.52, 0.51, 0.53), 4096)
    other = Finalist(TRIALS[6].configuration, Ratio(0.523, 0.51, 0.54), 512)
    verdict = Verdict(TRIALS[3].configuration, best.ratio, [best, other], [
        Neighbour("gemm:m=63,n=63,k=63", Outcome.CORRECT, ratio=Ratio(0.5, 0.49, 0.51)),
        Neighbour("gemm:m=128,n=128,k=128", Outcome.CORRECT, ratio=Ratio(0.8, 0.79, 0.81))])
    exchanges = [
        Exchange(0, "SmolLM2", f'[{{"content": "{EVIL}"}}]', f"```{EVIL}```", "", 2.5, 900, 40,
                 [3]),
        Exchange(1, "SmolLM2", "[]", "", f"http 429 {EVIL}", 0.5, 900, 0, [])]
    given = {"verdict": verdict, "exchanges": exchanges, "strategy": "llm", "seed": 7,
             "machine": f"Xeon {EVIL}"}
    return report.Run(space_of(EVIL), TRIALS, **(given | more))


class TextTest(unittest.TestCase):
    def test_impact_compares_with_the_best_what_differs_in_that_tunable_alone(self) -> None:
        rows = {row[0]: row[1:4] for row in sections.impact(run_of()).rows}
        self.assertEqual(rows, {"path": ["0", "", "1: crash"],
                                "mr": ["8", "1.800×", "4: 1.800×, 16: incorrect"],
                                "kc": ["128", "1.600×", "64: 1.600×, 256: 1.200×"]})

    def test_stability_is_1_minus_population_deviation_over_mean(self) -> None:
        def told(*speed_ups: float, wrong: int = 0) -> str:
            sizes = [Neighbour("s", Outcome.CORRECT, ratio=Ratio(1 / up, 1 / up, 1 / up))
                     for up in speed_ups]
            return sections.stability(sizes + wrong * [Neighbour("w", Outcome.CRASH)])

        score = 1 - statistics.pstdev((1, 2, 3)) / 2
        self.assertRegex(told(1, 2, 3), rf"^Not stable: score {score:.3f} .* 1.000× to 3.000×\.$")
        self.assertTrue(told(1, 1.1, 1.2).startswith("Stable"))
        self.assertRegex(told(1, 1.1, wrong=1), "^Not stable.*; not all sizes are correct")
        self.assertEqual(told(wrong=2), "No size is correct: not stable.")

    def test_everything_is_told_section_by_section(self) -> None:
        tables = sections.tables(run_of())
        self.assertEqual([table.name for table in tables], [
            "Summary", "Tie set", "Convergence", "Top five", "Impact, one at a time from the best",
            "Stability across sizes", "Failures", "Language model",
            "Requests to the language model"])
        told = {table.name: table.rows for table in tables}
        self.assertEqual([row[:2] for row in told["Convergence"]],
                         [["0", "0.5 s"], ["1", "1.0 s"], ["3", "2.0 s"]])
        self.assertEqual([row[:2] + row[3:4] for row in told["Failures"]],
                         [["2", "crash", "2"], ["1", "incorrect", "5"]])
        self.assertEqual(len(told["Stability across sizes"]), 3)
        model = dict(told["Language model"])
        self.assertEqual((model["requests"], model["resulting attempts"],
                          model["of these a new best"]), ("2; 1 of use", "1, 1 correct", "1"))
        requests = told["Requests to the language model"]
        self.assertIn("attempt 3: 2.000× (mr clamped to 8", requests[0][3])
        self.assertIn("http 429", requests[1][3])
        text = report.render_text(run_of())
        for part in ("path=0,mr=4,kc=64, 100 µs", "path=0,mr=8,kc=128", "1.923× [1.887, 1.961]",
                     "default 20.0 %, chosen 38.5 %", "a tie of 2", "8; 5 correct (62.5 %)",
                     "llm, seed 7", "4.0 s: proposing 0.1 s"):
            self.assertIn(part, text)
        self.assertEqual(re.findall(r"[\x00-\x09\x0b-\x1f\x7f]", text), [])

    def test_a_run_without_verdict_says_so_and_one_without_trials_is_a_report(self) -> None:
        self.assertIn("the run ended before the best were measured again",
                      report.render_text(run_of(verdict=None)))
        for trials, said in (([], "No attempt was correct."),
                             ([TRIALS[2]], "1; 0 correct (0.0 %)")):
            with tempfile.TemporaryDirectory() as name:
                report.write(Path(name), report.Run(space_of(), trials))
                self.assertIn(said, (Path(name) / "report.txt").read_text(encoding="utf-8"))


class Page(html.parser.HTMLParser):
    """Which elements there are, and that they are closed in order."""
    VOID = {"meta", "br"}

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            raise ValueError(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self.text += data


class PageTest(unittest.TestCase):
    def page(self, run: report.Run) -> tuple[Page, str]:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "new"
            report.write(folder, run)
            self.assertEqual(sorted(file.name for file in folder.iterdir()),
                             ["report.html", "report.txt"])
            content = (folder / "report.html").read_text(encoding="utf-8")
        page = Page()
        page.feed(content)
        page.close()
        self.assertEqual(page.open, [])
        return page, content

    def test_the_page_loads_nothing_and_runs_nothing(self) -> None:
        page, content = self.page(run_of())
        tags = {tag for tag, _ in page.seen}
        self.assertFalse(tags & {"script", "link", "img", "iframe", "object"}, tags)
        for tag, attributes in page.seen:
            for name, value in attributes.items():
                self.assertFalse(name.startswith("on"), (tag, name))
                if name in ("href", "src"):
                    self.assertTrue(str(value).startswith("#"), value)
        self.assertNotIn("<script", content)
        self.assertIn("default-src 'none'", content)

    def test_the_text_of_others_stays_text(self) -> None:
        page, content = self.page(run_of(machine=f"Xeon \udcff {EVIL}"))
        visible = page.text
        self.assertIn("Xeon ?", content)
        self.assertGreaterEqual(visible.count("<script>alert(1)</script>"), 6)
        self.assertEqual(content.count("<script>alert(1)"), 0)
        self.assertNotIn("\x1b", content)

    def test_links_lead_to_sections_and_charts_show_every_attempt(self) -> None:
        page, content = self.page(run_of())
        anchors = {attributes.get("id") for _, attributes in page.seen}
        for tag, attributes in page.seen:
            if tag == "a":
                self.assertIn(attributes["href"][1:], anchors)
        self.assertEqual(sum(tag == "figure" for tag, _ in page.seen), 2)
        for number in range(len(TRIALS)):
            self.assertEqual(content.count(f"<title>attempt {number},"), 2)


class DrawingTest(unittest.TestCase):
    def test_ticks_are_round_and_within(self) -> None:
        self.assertEqual(drawing.ticks(0, 1), [0, .2, .4, .6000000000000001, .8, 1])
        self.assertEqual(drawing.ticks(-3, 97), [0, 20, 40, 60, 80])
        self.assertEqual(drawing.ticks(2, 2), [2])

    def test_what_is_outside_the_frame_interrupts_the_line(self) -> None:
        series = drawing.Series("a", [(0, 0), (1, 1), (2, -9), (3, 1), (4, 0)], "#000")
        self.assertEqual(drawing.lines([series], "t", "x", "y", (0, 1)).count("<path"), 2)

    def test_nothing_to_draw_is_told(self) -> None:
        self.assertIn("nothing to draw", drawing.lines([], "t", "x", "y"))


if __name__ == "__main__":
    skip.main(sys.argv)

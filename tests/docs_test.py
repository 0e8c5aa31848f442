#!/usr/bin/env python3
"""The pages: docs_test.py ROOFLANE BUILD_DIR SOURCE_DIR ALL_PAGES PAGES COMPILER...

Every command of README.md, docs/ and kernels/README.md is run in a copy of the tree, page by page
from top to bottom: of PAGES, with commas between, so that a test per page spreads them over the
cores; with none, what needs no commands is checked: programs, links, options, and that ALL_PAGES
are all that there are. What would take minutes, or wants what a machine may lack, is changed by a
line of ADDED or SWAPPED, with the reason. Shown output is checked too.
Nothing depends on speed. Python's standard library only; commands that need NumPy or the report's
environment, which peers.py and report.py make from PyPI, are skipped where PyPI cannot be reached.
"""
from __future__ import annotations

import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from dataclasses import dataclass
from pathlib import Path

import package_environment
import skip
from command_line import is_only_suspect

ROOFLANE, BUILD, ROOT = Path(), Path(), Path()
TESTED: list[str] = []  # all pages that some test works through
PAGES: list[str] = []   # those of this one
COMPILER: list[str] = []
PATIENCE = 300  # seconds for a command: other tests use the machine meanwhile
README_LINES = 150

GEMM, SOFTMAX = "--shape gemm:m=5,n=7,k=3", "--shape softmax:rows=4,cols=9"
ATTENTION = "--shape attention:batch=1,heads=2,q_len=9,kv_len=9,head_dim=8"
BRIEF = "--threads 1 --min-time 0.0001 --max-time 0.05 --launches 1 --ceilings-time 0.1"
# For scripts that call `bench` themselves: a list of peers that has none of their names, and the
# program with limits that are hardly measured.
FEW_PEERS = "ROOFLANE_PEERS=tests/fake_peers.py"
BRIEF_PROGRAM = """#!/bin/sh
if [ "$1" = bench ]; then set -- "$@" --ceilings-time 0.1; fi
exec {} "$@"
"""


@dataclass(frozen=True)
class Added:
    """Appended to every command of a page that `pattern` matches from end to end."""
    pattern: str
    text: str
    reason: str


@dataclass(frozen=True)
class Swapped:
    """Words of a page's command, and what stands for them."""
    words: str
    run: str
    reason: str


MEASURES = r"build/rooflane bench (?!.*--dry-run)"
ADDED = [
    Added(r"scripts/bench\.sh.*", f"{GEMM} {BRIEF}", "a small problem, few samples"),
    Added(r"scripts/test\.sh", "statistics", "the tests cannot run themselves; one of them can"),
    Added(r"meson test -C build .*", "--no-rebuild --list", "the test runs beside this one"),
    Added(r"scripts/check_ceilings\.py.*", "|| [ $? = 1 ]",
          "a limit measured so briefly may be LOW, which is status 1"),
    Added(r"scripts/speed_vs_peers\.sh --low-precision.*",
          "--classes gemm-fused --threads 1 --launches 1 --rooflane ./brief", "two problems"),
    Added(r"scripts/speed_vs_peers\.sh (?!--csv|--low).*",
          "--classes layernorm-in-cache --threads 1 --launches 1 --rooflane ./brief",
          "a small problem"),
    Added(r"scripts/opencl_vs_peers\.sh .*--cl-device.*", "--rooflane ./brief", "a small problem"),
    Added(r"build/rooflane ceilings.*", "--threads 1 --seconds 0.5", "20 seconds"),
    Added(r"build/rooflane calibrate.*", "--threads 1 --seconds 0.5", "15 seconds"),
    Added(MEASURES + r".*", BRIEF, "few samples"),
    Added(r"build/rooflane tune (?!--space|--strategy source).*", "--budget 6 --final-time 3",
          "two minutes on a busy machine"),
    Added(r"build/rooflane judge [^-].*", "--budget 0.3 --hidden 2 --against hwy", "few samples"),
    Added(r"scripts/python_overhead\.py", "--rounds 3 --runs 100", "ten seconds"),
    Added(r"python3 -m rooflane bench.*", BRIEF, "few samples"),
    Added(r"scripts/models\.sh", "--quick --models block --threads 1", "ten minutes"),
    Added(r"build/rooflane model (?!.*--dry-run).*",
          "--threads 1 --max-time 0.1 --ceilings-time 0.2", "few samples"),
    Added(MEASURES + r"(?!.*(--shape|--preset|-k )).*", GEMM, "a small problem"),
    Added(r"build/rooflane (bench|verify) .*-k gemm.*", GEMM, "a small problem"),
    Added(r"(build/)?rooflane (bench|verify) .*-k softmax.*", SOFTMAX, "a small problem"),
    Added(MEASURES + r".*-k attention.*", ATTENTION, "a small problem"),
    Added(MEASURES + r".*--(shape gemm|preset quick).*",
          "--benchmark_filter='m=64,|m=128,|rows=1,'", "the small ones of these problems"),
    Added(MEASURES + r".*--preset crossover.*", "--benchmark_filter='hwy.*rows=16,'",
          "the small ones of these problems; PoCL takes seconds to build a kernel"),
]
SWAPPED = [
    Swapped("scripts/arm.sh", "bash -n scripts/arm.sh #", "an hour, and a cross compiler"),
    Swapped("scripts/arm_predict.py", "scripts/arm_predict.py --help", "a build for aarch64"),
    Swapped("scripts/compare_check.sh", "bash -n scripts/compare_check.sh", "41 runs and a build"),
    Swapped("scripts/book.sh", "bash -n scripts/book.sh", "the test `book` builds it"),
    Swapped("scripts/wheel.sh python3", "bash -n scripts/wheel.sh", "minutes"),
    Swapped("python3 -m pip install dist/rooflane-*.whl", "true", "the build's package instead"),
    Swapped("python3 -m rooflane bench --preset quick --launches 1 --max-time 0.5 --csv rows.csv",
            f"PYTHONPATH=build/python $PACKAGE_PYTHON -m rooflane bench {GEMM} --csv rows.csv",
            "a minute"),
    Swapped("--set width=2048 --set heads=32 --set kv_heads=8 --set hidden=8192",
            "--set width=64 --set heads=4 --set kv_heads=2 --set hidden=96", "a minute"),
    Swapped("python3 -m rooflane bench",
            "PYTHONPATH=build/python $PACKAGE_PYTHON -m rooflane bench", "the build's package"),
    Swapped("scripts/faults.sh", "bash -n scripts/faults.sh",
            "an hour; the tests faults-* are its short form"),
    Swapped("scripts/speed_vs_peers.sh", f"{FEW_PEERS} scripts/speed_vs_peers.sh",
            "the peers that are part of the build; others are large"),
    Swapped("scripts/opencl_vs_peers.sh", f"{FEW_PEERS} scripts/opencl_vs_peers.sh",
            "the peers that are part of the build; others are large"),
    Swapped("scripts/tune.py league", "true scripts/tune.py league", "hours, and the reader's"),
    Swapped("scripts/model_shapes.py bert.onnx --batch 1 --len 128 --out bert.txt",
            "python3 -m py_compile scripts/model_shapes.py", "the graph is the reader's"),
    Swapped("model bert.txt", "model examples/model/mine.txt", "the graph is the reader's"),
    Swapped("tune.py scheduler --host 10.0.0.1", "tune.py scheduler --help", "it runs for ever"),
    Swapped("tune.py worker tcp://10.0.0.1:8786", "tune.py worker --help", "it runs for ever"),
    Swapped("--cluster tcp://10.0.0.1:8786 --preset llama3-8b --budget 200",
            "--shape gemm:m=5,n=7,k=3 --threads 1 --budget 4 --no-store", "there is no cluster"),
    Swapped("check_models.py --torch", "check_models.py block", "PyTorch is large"),
    Swapped("--peers numpy,torch", "--peers numpy", "PyTorch is large"),
    Swapped("--peers all", "--peers numpy", "PyTorch is large"),
    Swapped("python3 -c", "$NUMPY -c", "a Python that has NumPy"),
    Swapped("PYTHONPATH=build/python python3 examples/python/compiled.py",
            "python3 -m py_compile examples/python/compiled.py", "Numba and JAX are large"),
    Swapped("PYTHONPATH=build/python python3 examples/python/pytorch.py",
            "python3 -m py_compile examples/python/pytorch.py", "PyTorch is large"),
    Swapped("PYTHONPATH=build/python python3",
            "ROOFLANE_PROGRAM=./brief PYTHONPATH=build/python $PACKAGE_PYTHON",
            "a Python that has NumPy and pandas; limits that are hardly measured"),
    Swapped("old=../old/build/rooflane", "old=build/rooflane", "the other build is the reader's"),
    Swapped("docker build -f packaging/Dockerfile", "test -f packaging/Dockerfile #",
            "a test has no daemon that builds images"),
    Swapped("docker run", "true", "there is no image"),
    Swapped("build/rooflane bisect HEAD~20..HEAD", "build/rooflane bisect HEAD..HEAD --help",
            "the copy has no history"),
    Swapped("compare old.csv new.csv --fail-on-regression",
            "compare old.csv old.csv --fail-on-regression", "brief runs may differ"),
    Swapped("--source-budget 2", "--source-budget 0.3", "few samples"),
    Swapped("-v online", "-v scalar", "the variant is the reader's"),
    Swapped("model llama --weights SmolLM2-135M-Instruct.Q4_1.gguf",
            "model llama --set layers=2,width=64,heads=4,kv_heads=2,hidden=96,vocab=265,prompt=5,"
            "capacity=6 --weights $BUILD/tests/tiny.gguf", "100 MB to fetch"),
    Swapped("--weights SmolLM2-135M-Instruct.Q4_1.gguf", "--weights $BUILD/tests/tiny.gguf",
            "100 MB to fetch"),
    Swapped("--ids 504,3575,314", "--ids 72,101,7", "fewer tokens"),
    Swapped("scripts/llm_compare.py", "python3 -m py_compile scripts/llm_compare.py #",
            "it builds llama.cpp"),
    Swapped("$(git rev-parse HEAD)", "0123456789" * 4, "the copy has no history"),
    Swapped("scripts/debian_package.sh", "bash -n scripts/debian_package.sh",
            "a quarter of an hour"),
    Swapped("meson install -C build", "meson install -C $BUILD --no-rebuild --destdir $INSTALLED",
            "into an empty folder"),
]


@dataclass(frozen=True)
class Expected:
    """What becomes of the commands that `pattern` matches; all others end with status 0."""
    pattern: str
    says: str  # a pattern that the output holds
    status: int = 0


EXPECTED = [
    Expected(r"scripts/model_regret\.sh.*", r"(?m)^\| ~ all \| 3 \|"),
    Expected(r"scripts/bench\.sh.*", r"(?m)^rows: results/\S+/\S+\.csv$"),
    Expected(r"scripts/test\.sh", r"(?m)^[1-9]\d* passed, 0 failed\b"),
    Expected(r"meson test .*", r"conformance-softmax"),
    Expected(r"scripts/check_models\.py.*", r"(?m)^PASSED block run/y: differs from NumPy"),
    Expected(r"scripts/models\.sh", r"(?m)^For \d+ of 16 swaps \(\d+ %\) the measured gain"),
    Expected(r"scripts/check_ceilings\.py.*", r"(?m)^ceiling +program +ours"),
    Expected(r"scripts/speed_vs_peers\.sh --low.*", r"(?m)^\| gemm-fused.* \| 1 "),
    Expected(r"scripts/speed_vs_peers\.sh (?!--csv|--low).*",
             r"(?m)^\| layernorm-in-cache \| 1 "),
    Expected(r"scripts/speed_vs_peers\.sh --csv.*", r"goals of Zen 5"),
    Expected(r"scripts/opencl_vs_peers\.sh (?!.*--cl-device).*", r"OpenCL sees no GPU", 3),
    Expected(r"build/rooflane compare (?!.*--json).*", r"(?m)^\**[1-9]\d* rows?: "),
    Expected(r".*examples/python/arrays\.py", r"rows sum to 1: True\nplan agrees: True"),
    Expected(r".*examples/python/mine\.py", r"mine +PASSED"),
    Expected(r".*examples/python/tour\.py", r"(?s)agrees with plain loops: True.*verdict"),
    Expected(r".*python_overhead\.py", r"plan\.run\(\) beyond C\+\+ +-?\d+ ns"),
    Expected(r"\./main .*", r"(?m)^\w+: c\[0\] = 16$"),
    Expected(r"build/rooflane tune (?!--space).*", r"(?m)^  \d+ evaluations, \d+ correct; run \d"),
    Expected(r"build/rooflane judge [^-].*", r"(?m)^(WINNER|TIE|LOSER|UNDECIDED)  "),
    Expected(r"build/rooflane judge --history .*", r"softmax"),
    Expected(r"build/rooflane tune --strategy source .*", r"(?m)^  source \d takes "),
    Expected(r"build/rooflane tune --space .*", r"(?m)^ +\d+ ns predicted +path=.*default$"),
    Expected(r"python3 -c .*print.*", r"(?m)^largest difference: (0\.0|[0-9.]+e-0[5-9])$"),
]


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: `language` behind the fence, the text without indentation."""
    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """The commands of a block of sh, without their comments."""
        joined = re.sub(r"\\\n", "\0", self.text)  # a line that goes on
        lines = [re.sub(r"(^|\s+)#\s.*$", "", line) for line in joined.splitlines()]
        return [line.replace("\0", "\\\n") for line in lines if line]


def pages() -> list[str]:
    """All pages."""
    docs = sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
    return ["README.md", *docs, "kernels/README.md"]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page."""
    found: list[Block] = []
    opened: tuple[int, str, list[str]] | None = None
    for number, line in enumerate(text_of(page).splitlines(), 1):
        fence = re.fullmatch(r" *```(\w*)", line)
        if opened is None:
            opened = (number, fence[1], []) if fence else None
        elif fence:
            text = textwrap.dedent("\n".join(opened[2]) + "\n")
            found.append(Block(page, opened[0], opened[1], text))
            opened = None
        else:
            opened[2].append(line)
    return found


def all_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks(page)]


def blocks_of_sh(page: str) -> list[Block]:
    return [block for block in blocks(page) if block.language == "sh"]


def commands(page: str) -> list[str]:
    return [command for block in blocks_of_sh(page) for command in block.commands()]


def all_commands() -> list[str]:
    return [command for page in pages() for command in commands(page)]


def inline_code(page: str) -> list[str]:
    """The text in backquotes outside of fenced blocks."""
    prose = re.sub(r"(?ms)^ *```.*?^ *```$", "", text_of(page))
    return re.findall(r"`([^`\n]+)`", prose)


def to_run(command: str) -> str:
    """The command as it is run here."""
    run = command
    for swapped in SWAPPED:
        run = run.replace(swapped.words, swapped.run)
    for added in ADDED:
        if re.fullmatch(added.pattern, command, re.DOTALL):
            run += " " + added.text
    return run


def unindented(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines())


def cells(line: str) -> list[str]:
    """The headings of a line of a table on the terminal."""
    return re.split(r"\s{2,}", line.strip())


def python_with_numpy() -> tuple[str, str]:
    """The interpreter of the environment that peers.py makes, or nothing and the reason."""
    script = ROOT / "scripts/peers.py"
    asks = (f"import sys; sys.path.insert(0, {str(script.parent)!r}); "
            "from peer_workers import environments; print(environments.interpreter('numpy'))")
    for command in ([sys.executable, script, "--prepare", "numpy"], [sys.executable, "-c", asks]):
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        if done.returncode != 0:
            return "", done.stderr.strip().splitlines()[-1]
    return done.stdout.strip(), ""


def python_with_package() -> tuple[str, str]:
    """An interpreter that has what the Python package needs, or nothing and the reason."""
    if not list((BUILD / "python/rooflane").glob("_core*.so")):
        return "", "built without the Python package"
    sys.path.insert(0, str(ROOT / "scripts"))
    from python_environment import Unavailable
    try:
        return str(package_environment.interpreter()), ""
    except Unavailable as reason:
        return "", str(reason)


@dataclass(frozen=True)
class Ran:
    """What became of a command."""
    block: Block
    command: str  # as on the page
    run: str      # as it was run
    status: int   # -1: it was ended
    output: str   # standard output and standard error
    seconds: float


class Place:
    """Copies of the tree to work in, one a page, and what they share: tools, an installed tree."""

    # Who sees the installed tree: the page that makes it, then the page that uses it.
    LINKING = ("docs/linking.md", "docs/plugins.md")
    # Who sees an OpenCL device, of PoCL; elsewhere its kernels would take seconds to build.
    DEVICE = "docs/gpu.md"

    def __init__(self, folder: Path, numpy: str, package: str):
        self.folder, self.numpy, self.package = folder, numpy, package
        for name in ("tools", "installed", "drivers", "no-drivers"):
            (folder / name).mkdir()
        # The compiler of the build; looked for where it was, not in this folder.
        write_program(folder / "tools/g++", f"#!/bin/sh\nPATH={shlex.quote(os.environ['PATH'])}\n"
                                            f"exec {shlex.join(COMPILER)} \"$@\"\n")
        for path in glob.glob("/etc/OpenCL/vendors/pocl*.icd"):
            shutil.copy(path, folder / "drivers")
        self.no_device = skip.no_device(ROOFLANE, self.environment(self.DEVICE))

    def copy_tree(self, page: str) -> Path:
        """A fresh copy of the tree. build/ holds the program and what `meson test` asks for."""
        copy = self.folder / page.replace("/", "-").removesuffix(".md")
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(
            ".*", "build*", BUILD.name, "results", "__pycache__"))
        (copy / "results").mkdir()
        for rows in set(re.findall(r"results/\S+\.csv", "\n".join(commands(page)))):
            for path in filter(Path.exists, (ROOT / rows, ROOT / f"{rows}.samples.csv")):
                (copy / rows).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, (copy / rows).parent)
        (copy / "build/meson-logs").mkdir(parents=True)
        shutil.copytree(BUILD / "meson-private", copy / "build/meson-private",
                        ignore=shutil.ignore_patterns("*.exe", "tmp*"))
        (copy / "build/rooflane").symlink_to(ROOFLANE)
        (copy / "build/python").symlink_to(BUILD / "python")
        (copy / "build/bench").mkdir()
        (copy / "build/bench/model-regret").symlink_to(BUILD / "bench/model-regret")
        write_program(copy / "scripts/build.sh", "#!/bin/sh\n")  # all is built
        write_program(copy / "brief", BRIEF_PROGRAM.format(shlex.quote(str(ROOFLANE))))
        return copy

    def environment(self, page: str) -> dict[str, str]:
        """What the commands of a page are run with."""
        installed = self.folder / "installed"
        drivers = str(self.folder / ("drivers" if page == self.DEVICE else "no-drivers"))

        def search(name: str, *first: str) -> str:
            return ":".join(filter(None, [*first, os.environ.get(name, "")]))

        def found(pattern: str) -> list[str]:
            return [str(path.parent) for path in installed.glob(pattern)]

        variables = {
            **os.environ, "NUMPY": self.numpy,
            # A page starts the same packages many times; what is compiled lies beside the tree.
            "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": os.environ.get(
                "PYTHONPYCACHEPREFIX", str(self.folder / "compiled")),
            "PACKAGE_PYTHON": self.package,
            "ROOFLANE_ARCHIVE": str(self.folder / "tune.sqlite"),
            "ROOFLANE_JUDGE_ARCHIVE": str(self.folder / "judge.jsonl"),
            "PATH": search("PATH", str(self.folder / "tools")),
            "OCL_ICD_VENDORS": drivers, "OPENCL_VENDOR_PATH": drivers, "OCL_ICD_FILENAMES": "",
            "BUILD": str(BUILD), "INSTALLED": str(installed)}
        if page in self.LINKING:
            variables |= {
                "PATH": search("PATH", str(self.folder / "tools"), *found("**/bin/rooflane")),
                "LD_LIBRARY_PATH": search("LD_LIBRARY_PATH", *found("**/librooflane.so")),
                "PKG_CONFIG_PATH": search("PKG_CONFIG_PATH", *found("**/rooflane.pc")),
                "PKG_CONFIG_SYSROOT_DIR": str(installed)}
        return variables

    def work_through(self, page: str) -> list[Ran]:
        """Runs the commands of a page in their order."""
        folder = self.copy_tree(page)
        return [self.run(block, command, folder) for block in blocks_of_sh(page)
                for command in block.commands()]

    def run(self, block: Block, command: str, folder: Path) -> Ran:
        run = to_run(command)
        start = time.monotonic()
        try:
            done = subprocess.run(["bash", "-c", run], cwd=folder, stdin=subprocess.DEVNULL,
                                  env=self.environment(block.page), stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, errors="replace",
                                  timeout=PATIENCE, check=False)
            status, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired:
            status, output = -1, f"not done within {PATIENCE} s"
        return Ran(block, command, run, status, output, time.monotonic() - start)


def write_program(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


class Pages(unittest.TestCase):
    def test_the_commands_of_every_page_are_run(self):
        self.assertEqual(sorted(TESTED), sorted(pages()))

    def test_the_readme_takes_two_minutes(self):
        read = [line for line in text_of("README.md").splitlines() if not line.startswith("<!--")]
        self.assertLessEqual(len(read), README_LINES)

    def test_every_page_is_in_the_book(self):
        navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
        for page in pages()[1:]:
            place = page.removeprefix("docs/") if page.startswith("docs/") else f"tree/{page}"
            with self.subTest(page):
                self.assertRegex(navigation, rf"(?m)^ +- .+: {re.escape(place)}$")

    def test_every_link_leads_to_a_file_or_a_heading(self):
        done = subprocess.run([sys.executable, ROOT / "scripts/check_links.py"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_block_is_of_a_kind_that_is_checked(self):
        for block in all_blocks():
            with self.subTest(block.place):
                self.assertIn(block.language, ("sh", "c", "cpp", "json", "python", "text", ""))

    def test_programs_are_those_of_the_examples(self):
        head = r'\A(//.*\n|#!.*\n|""".*"""\n)*'
        examples = [re.sub(head, "", path.read_text(encoding="utf-8"))
                    for pattern in ("*/*.c*", "*/*.py")
                    for path in (ROOT / "examples").glob(pattern)]
        shown = [block for block in all_blocks() if block.language in ("c", "cpp", "python")
                 and not re.match(r"kernels/|docs/ladder-", block.page)]
        self.assertEqual(len(shown), len(examples))
        for block in shown:
            with self.subTest(block.place):
                self.assertIn(block.text, examples)

    def test_code_of_a_ladder_is_that_of_its_steps(self):
        for page in pages():
            if not (kernel := re.fullmatch(r"docs/ladder-(\w+)\.md", page)):
                continue
            source = (ROOT / f"kernels/{kernel[1]}/ladder.cpp").read_text(encoding="utf-8")
            shown = [block for block in blocks(page) if block.language == "cpp"]
            self.assertGreater(len(shown), 2)
            for block in shown:
                with self.subTest(block.place):
                    self.assertIn(unindented(block.text), unindented(source))

    def test_files_are_those_of_the_examples(self):
        for language, pattern in (("json", "*/*.json"), ("text", "*/*.txt")):
            examples = [path.read_text(encoding="utf-8")
                        for path in (ROOT / "examples").glob(pattern)]
            shown = [block.text for block in all_blocks() if block.language == language]
            self.assertEqual(sorted(shown), sorted(examples))

    def test_the_record_of_a_variant_compiles(self):
        block, = (block for block in blocks("kernels/README.md") if block.language == "cpp")
        variant = (ROOT / "kernels/softmax/scalar.cpp").read_text(encoding="utf-8")
        written, count = re.subn(r"(?ms)^const Variant scalar = .*?;\n",
                                 lambda _: block.text, variant)
        self.assertEqual(count, 1)
        done = subprocess.run(
            [*COMPILER, "-std=c++20", "-fsyntax-only", f"-I{ROOT}", f"-I{ROOT}/src",
             f"-I{BUILD}/kernels", "-x", "c++", "-"], input=written, capture_output=True, text=True,
            check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_every_option_exists(self):
        known = "".join(path.read_text(encoding="utf-8")
                        for pattern in ("src/cli/*.cpp", "scripts/*.sh", "scripts/*.py",
                                        "python/rooflane/**/*.py")
                        for path in ROOT.glob(pattern))
        # Options of pkg-config, rattler-build, vcpkg, docker, buildah, git and systemd-run.
        theirs = ["--cflags", "--libs",
                  "--recipe", "--overlay-ports",
                  "--build-arg", "--rm", "--memory", "--cap-add", "--gpus", "--device",
                  "--security-opt", "--isolation", "--network", "--unshallow", "--scope"]
        for page in pages():
            code = "\n".join([*inline_code(page), *(block.text for block in blocks(page)
                                                    if block.language == "sh")])
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", code):
                with self.subTest(page, option=option):
                    self.assertTrue(option in theirs or re.search(rf"{option}\b(?!-)", known))

    def test_scripts_that_are_named_exist(self):
        for page in pages():
            for name in re.findall(r"\bscripts/\w+\.(?:sh|py)\b", text_of(page)):
                with self.subTest(page, script=name):
                    self.assertTrue(os.access(ROOT / name, os.X_OK))

    def test_every_change_is_of_a_command_on_a_page(self):
        commands = all_commands()
        for swapped in SWAPPED:
            with self.subTest(swapped.words):
                self.assertTrue(any(swapped.words in command for command in commands))
                self.assertTrue(swapped.reason)
        for rule in [*ADDED, *EXPECTED]:
            with self.subTest(rule.pattern):
                self.assertTrue(any(re.fullmatch(rule.pattern, command, re.DOTALL)
                                    for command in commands))


def same_heading(one: list[str], other: list[str]) -> bool:
    """Whether two lines are one heading. In a wide table a title goes on in a second line."""
    return len(one) == len(other) and all(
        a == b or a.startswith(f"{b} ") or b.startswith(f"{a} ") for a, b in zip(one, other))


class Commands(unittest.TestCase):
    """Every command of PAGES, once."""

    ran: list[Ran] = []
    no_numpy, no_package, no_device = "", "", ""

    @classmethod
    def setUpClass(cls) -> None:
        numpy = package = ""
        run = "".join(to_run(command) for page in PAGES for command in commands(page))
        if "$NUMPY" in run:
            numpy, cls.no_numpy = python_with_numpy()
        if "$PACKAGE_PYTHON" in run:
            package, cls.no_package = python_with_package()
        with tempfile.TemporaryDirectory() as folder:
            place = Place(Path(folder), numpy, package)
            cls.no_device = place.no_device
            for page in PAGES:
                cls.ran += place.work_through(page)
        for ran in cls.ran:
            print(f"{ran.seconds:5.1f} s  {ran.block.place}  {ran.run}", file=sys.stderr)

    def test_every_command_does_what_its_page_says(self) -> None:
        for ran in self.ran:
            with self.subTest(ran.block.place, command=ran.command, run=ran.run):
                self.check(ran)

    def check(self, ran: Ran) -> None:
        if self.no_numpy and "$NUMPY" in "".join(
                other.run for other in self.ran if other.block.page == ran.block.page):
            self.skipTest(skip.reason(self.no_numpy, "from PyPI: numpy"))
        if self.no_package and ("$PACKAGE_PYTHON" in ran.run or "python_overhead" in ran.run):
            self.skipTest(skip.reason(self.no_package))
        if no_packages := skip.no_packages(ran.status, ran.output):
            self.skipTest(no_packages)
        no_jail = [other.output for other in self.ran
                   if other.status == 3 and "jail" in other.output]
        if no_jail and re.search("rooflane judge|--strategy source", ran.command):
            self.skipTest(skip.reason(no_jail[0].strip().splitlines()[-1], "bubblewrap"))
        if self.no_device and re.search(r"-v opencl|--cl-device", ran.command):
            self.assertEqual(ran.status, 3, ran.output)
            self.skipTest(self.no_device)
        expected = [each for each in EXPECTED
                    if re.fullmatch(each.pattern, ran.command, re.DOTALL)]
        suspect = ran.status == 1 and "bench" in ran.run and is_only_suspect(ran.output)
        status = 0 if suspect else ran.status
        self.assertEqual(status, max((each.status for each in expected), default=0), ran.output)
        for each in expected:
            self.assertRegex(ran.output, each.says)

    def test_what_is_shown_is_printed(self) -> None:
        """A block without a language shows what the commands of the last block of sh before it
        print: the headings of a table, with a title before them or not, lines."""
        for page in PAGES:
            before: Block | None = None
            for block in blocks(page):
                if block.language == "sh":
                    before = block
                if block.language == "":
                    rans = [ran for ran in self.ran if ran.block == before]
                    printed = [cells(line) for ran in rans for line in ran.output.splitlines()]
                    with self.subTest(block.place):
                        for ran in rans:
                            if no_packages := skip.no_packages(ran.status, ran.output):
                                self.skipTest(no_packages)
                        shown = [cells(line) for line in block.text.splitlines()[:2]]
                        headings = [heading for heading in shown if len(heading) > 3]
                        self.assertTrue(headings)
                        self.assertTrue(any(same_heading(heading, line) for heading in headings
                                            for line in printed), headings)


if __name__ == "__main__":
    ROOFLANE, BUILD, ROOT = (Path(path).resolve() for path in sys.argv[1:4])
    TESTED, PAGES = (list(filter(None, names.split(","))) for names in sys.argv[4:6])
    COMPILER = sys.argv[6:]
    skip.main([sys.argv[0], "Commands" if PAGES else "Pages"])

"""Tables of README.md, from the rows and the pages of results/. Used by page_tables.py.

A page of results/ is made from the rows beside it by the script that it names. Each table ends with
its date and commit, and says if the program has lost tunables of the rows since then.
"""
from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Iterable
from pathlib import Path

from page_reference import asked

RESULTS = Path(__file__).resolve().parent.parent / "results"
PEERS = {"blas": "OpenBLAS", "blas-mkl": "MKL", "blas-openblas": "OpenBLAS", "blis": "BLIS",
         "clblast": "CLBlast", "numba": "Numba", "numpy": "NumPy", "onednn": "oneDNN",
         "onnxruntime": "ONNX Runtime", "torch": "PyTorch", "torch-compile": "compiled PyTorch"}
# What a reader calls the problems, the classes and the models that a table may have.
PROBLEMS = {
    "gemm:m=1024,n=1024,k=1024": "`gemm` 1024 × 1024 × 1024",
    "gemm:m=1,n=4096,k=4096,trans_b=1": "`gemm` 1 × 4096 × 4096, b transposed",
    "softmax:rows=512,cols=2048": "`softmax` of 512 rows of 2048",
    "layernorm:rows=512,cols=768": "`layernorm` of 512 rows of 768",
    "attention:batch=1,heads=12,q_len=512,kv_len=512,head_dim=64,causal=0":
        "`attention` of 512 tokens, 12 heads of 64",
    "attention:batch=1,heads=12,q_len=512,kv_len=512,head_dim=64,causal=1": "the same, causal",
    "attention:batch=1,heads=32,kv_heads=8,q_len=1,kv_len=4096,head_dim=128,causal=0":
        "`attention`, 1 query, 4096 keys, 32 heads of 128"}
CLASSES = {
    "gemm-bf16": "bfloat16 GEMM", "gemm-int8": "GEMM of 8-bit integers",
    "gemm-dynamic4": "4-bit weights times activations rounded to 8 bits",
    "gemm-dynamic8": "8-bit weights times activations rounded to 8 bits",
    "gemm-weights4": "4-bit weights, float32 arithmetic",
    "gemm-weights8": "8-bit weights, float32 arithmetic",
    "gemm-fused": "linear layer with bias and gelu, float32",
    "softmax-bf16": "softmax of bfloat16 beyond the caches",
    "layernorm-bf16": "LayerNorm of bfloat16 beyond the caches"}
MODELS = {
    ("gpt2-small", "run"): "GPT-2 small, 128 tokens",
    ("vit-b16", "run"): "ViT-B/16, one image",
    ("gnn large", "run"): "graph network, 10⁶ edges",
    ("llama", "prefill"): "SmolLM2-135M, prompt of 512 tokens",
    ("llama", "decode"): "SmolLM2-135M, next token"}
PRESETS = {"gpt2-small": "GEMM of GPT-2 small", "bert-base": "GEMM of BERT base",
           "random:30:57": "GEMM, random"}
TESTS = {"pp512 at 0": "reads a prompt of 512 tokens", "tg128 at 0": "writes 128 tokens"}


class Missing(Exception):
    """The rows or the page lack what a table needs; the text says what."""


def table(headings: list[str], lines: list[list[str]], text: int = 1) -> str:
    """Markdown; the first `text` columns are text, the others figures."""
    rule = ["---" if at < text else "---:" for at in range(len(headings))]
    return "".join("| " + " | ".join(line) + " |\n" for line in [headings, rule, *lines])


def page_of(*folder: str) -> str:
    return RESULTS.joinpath(*folder, "README.md").read_text(encoding="utf-8")


def kept_rows(machine: str) -> list[Path]:
    """The CSVs that the machine's page, its README.md, names: those are kept on purpose. `bench.sh`
    leaves the rows and samples of other runs beside them, which git ignores."""
    page = page_of(machine)
    return sorted(path for path in (RESULTS / machine).glob("*.csv") if path.name in page)


def lines_of(page: str, first: str) -> list[dict[str, str]]:
    """The lines of the page's table with that first heading."""
    found = re.search(rf"(?m)^\| {re.escape(first)} \|.*(?:\n\|.*)+", page)
    if found is None:
        raise Missing(f"no table of '{first}'")
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
             for line in found[0].splitlines()]
    return [dict(zip(cells[0], line, strict=True)) for line in cells[2:]]


def row_of(rows: list[dict[str, str]], **wanted: str) -> dict[str, str]:
    for row in rows:
        if all(row[key] == value for key, value in wanted.items()):
            return row
    raise Missing(f"no row with {wanted}")


def speed(row: dict[str, str]) -> str:
    value = float(row["gflops"])
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def rows_of(*paths: Path) -> list[dict[str, str]]:
    """The rows of these files that have a speed."""
    rows = []
    for path in paths:
        with path.open(encoding="utf-8", newline="") as file:
            rows += [row for row in csv.DictReader(file)
                     if row["status"] in ("PASSED", "INACCURATE")]
    return rows


def measured(program: Path, date: str, commit: str, rows: Iterable[dict[str, str]]) -> str:
    """When the rows were measured, and how many of their schedules the program would refuse."""
    limits = {(kernel["name"], variant["name"]):
              {each["name"]: (each["least"], each["most"]) for each in variant["tunables"]}
              for kernel in asked(program, "list", "--json")["kernels"]
              for variant in kernel["variants"] if variant.get("tunables")}

    def is_refused(row: dict[str, str]) -> bool:
        known = limits[row["kernel"], row["variant"]] | {"step": (0, 9)}
        settings = (each.split("=") for each in row["tuning"].split(","))
        return any(name not in known or not known[name][0] <= int(value) <= known[name][1]
                   for name, value in settings)

    tuned = [row for row in rows if row["tuning"] and (row["kernel"], row["variant"]) in limits]
    refused = sum(map(is_refused, tuned))
    text = f"\nMeasured on {date} at commit {commit}."
    if refused:
        text += (f" {refused} of {len(tuned)} schedules have tunables that this build lacks, so "
                 "the figures are not those of this build.")
    return f"{text}\n"


def ladder_measured(program: Path, kernel: str) -> str:
    """When the ladder of a kernel was measured."""
    rows = rows_of(RESULTS / "amd-epyc-zen-4-avx3-2c" / "ladders" / f"{kernel}.csv")
    changed = ", with uncommitted changes" if any(row["git_dirty"] == "1" for row in rows) else ""
    commit = rows[0]["build_commit"][:12] + changed
    return measured(program, rows[0]["test_time"][:10], commit, rows).lstrip()


def answers(program: Path, machine: str) -> str:
    """GFLOP/s of the variants on typical problems."""
    path, = kept_rows(machine)
    rows, shown = rows_of(path), []
    lines = []
    for problem, label in PROBLEMS.items():
        kernel, shape = problem.split(":")
        those = [row for row in rows if (row["kernel"], row["shape"]) == (kernel, shape)]
        peers = [row for row in those if row["variant"] in PEERS]
        if not peers:
            raise Missing(f"no peers for {problem}")
        best = max(peers, key=lambda row: float(row["gflops"]))
        ours = row_of(those, variant="hwy")
        shown.append(ours)
        share = " ".join([f"{float(ours['roof_pct']):.0f}",
                          f"[{float(ours['roof_pct_lo']):.0f}, {float(ours['roof_pct_hi']):.0f}]"])
        lines.append([label, speed(row_of(those, variant="scalar")),
                      f"{speed(best)} {PEERS[best['variant']]}",
                      speed(row_of(those, variant="opencl")), speed(ours), share, ours["bound"]])
    return table(["problem", "`scalar`", "best peer", "`opencl`", "`hwy`", "`hwy`, % of the roof",
                  "bound by"], lines) + measured(
        program, shown[0]["test_time"][:10], shown[0]["build_commit"][:12], shown)


def presets(program: Path, machine: str) -> str:
    """How `hwy` compares with the best peer in lists of problems."""
    path, = kept_rows(machine)
    rows, lines = rows_of(path), []
    for preset, label in PRESETS.items():
        times: dict[str, dict[str, float]] = {}
        for row in rows:
            if row["preset"] == preset:
                times.setdefault(row["shape"], {})[row["variant"]] = float(row["p50_ns"])
        ratios = {shape: min(those[name] for name in those if name in PEERS) / those["hwy"]
                  for shape, those in times.items()
                  if "hwy" in those and those.keys() & PEERS.keys()}
        if not ratios:
            raise Missing(f"no rows of {preset}")
        least = min(ratios, key=ratios.__getitem__)
        lines.append([label, str(len(ratios)), f"{statistics.geometric_mean(ratios.values()):.2f}",
                      str(sum(ratio > 1 for ratio in ratios.values())),
                      f"{ratios[least]:.2f}", f"`{least}`"])
    return table(["problems", "number", "times as fast as the best peer, geometric mean",
                  "faster in", "least", "there"], lines) + measured(
        program, rows[0]["test_time"][:10], rows[0]["build_commit"][:12], rows)


def page_measured(program: Path, page: str, *paths: Path) -> str:
    """The same for a page that has the date and the commit, made from the rows of these files."""
    found = re.search(r"(\d{4}-\d\d-\d\d).*?(?:build|commit) `?([0-9a-f]{7,})", page)
    if found is None:
        raise Missing("the page has no date and commit")
    return measured(program, found[1], found[2], rows_of(*paths))


def classes(program: Path, machine: str) -> str:
    """How classes of low-precision problems compare with the best peer, on one thread."""
    page = page_of(machine, "low-precision")
    known = {line["class"].split()[0]: line for line in lines_of(page, "class")
             if line["threads"] == "1"}
    lines = []
    for name, label in CLASSES.items():
        if name not in known:
            raise Missing(f"no class {name}")
        line = known[name]
        ratio = line["ratio to the best peer [95 %]"]
        if ">" in ratio or "<" in ratio:  # beyond what the page prints: too wide to say anything
            ratio = "not known: the problems disagree"
        lines.append([label, ratio,
                      f"{float(line['% of roof (least)'].split()[0]):.0f}"])
    paths = sorted(path for path in (RESULTS / machine / "low-precision").glob("*.csv")
                   if not path.name.endswith(".samples.csv"))
    return table(["class", "times as fast as the best peer [95 %]", "% of the roof"], lines) \
        + page_measured(program, page, *paths)


def models(program: Path, machine: str) -> str:
    """Times of whole models, and how well the gains of swaps were predicted."""
    page = page_of(machine, "models")
    known = {(line["model"], line["phase"]): line for line in lines_of(page, "model")[::-1]
             if "shares by kernel, %" in line}
    lines = []
    for key, label in MODELS.items():
        line = known[key]
        shares = dict(each.rsplit(" ", 1) for each in line["shares by kernel, %"].split(", "))
        lines.append([label, line["time"], line["% of the roof"],
                      *(f"{float(shares[kernel]):.0f} %" if kernel in shares else ""
                        for kernel in ("gemm", "attention"))])
    swaps = re.search(r"For (\d+) of (\d+) swaps", page)
    if swaps is None:
        raise Missing("the page does not count swaps")
    return table(["model, float32, 2 threads", "time", "% of the roof", "GEMM's share",
                  "attention's"], lines) \
        + page_measured(program, page, RESULTS / machine / "models" / "rows.csv") + (
        f"For {swaps[1]} of {swaps[2]} swaps the measured gain was within 3 points of the "
        "prediction.\n")


def language(program: Path, machine: str) -> str:
    """Tokens per second of a language model, beside other programs."""
    page = page_of(machine, "language-models")
    others = [name for name in ("llama.cpp", "ONNX Runtime") if f"× {name} [95 %]" in page]
    lines = [[line["format"], TESTS[line["test"]], line["rooflane, tokens/s"],
              *(line[f"× {name} [95 %]"] or "–" for name in others)]
             for line in lines_of(page, "format")
             if line["test"] in TESTS and (line["threads"], line["format"]) == ("2", "Q4_1")]
    return table(["SmolLM2-135M, weights", "2 threads", "tokens/s",
                  *(f"times {name}" for name in others)], lines, text=2) \
        + page_measured(program, page)

"""The page about all models of a machine, as Markdown; what holds of the proofs altogether."""
from __future__ import annotations

from models_table.runs import Cells, Result

CLOSE = 3.0  # points


def time_text(ns: float) -> str:
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= scale:
            return f"{ns / scale:.4g} {unit}"
    return f"{ns:.4g} ns"


def wholes(result: Result) -> list[Cells]:
    return [row for row in result.rows if row["kernel"] == "model"]


def steps(result: Result, phase: str) -> list[Cells]:
    return [row for row in result.rows if row["step"].startswith(phase + "/")]


def shares_by_kernel(result: Result, phase: str) -> list[tuple[str, float]]:
    """Per cent of the phase's time by kernel, the largest first."""
    shares: dict[str, float] = {}
    for row in steps(result, phase):
        shares[row["kernel"]] = shares.get(row["kernel"], 0) + float(row["share_pct"])
    return sorted(shares.items(), key=lambda share: -share[1])


def limit(share: float) -> str:
    return f"{100 / (100 - share):.3g}×" if share < 99.95 else "–"


def per_cent(part: str, whole: float) -> str:
    return f"{100 * float(part) / whole:.0f}" if part else "–"


def bound(result: Result, phase: str) -> str:
    """By which limit steps with most of the time are bound, and their share."""
    shares: dict[str, float] = {}
    for row in steps(result, phase):
        if row["bound"]:
            shares[row["bound"]] = shares.get(row["bound"], 0) + float(row["share_pct"])
    if not shares:
        return "–"
    name, share = max(shares.items(), key=lambda each: each[1])
    return f"{name}, {share:.0f}"


def limits_table(results: list[Result]) -> list[str]:
    """Rates beside what the machine can: several phases of a model share a process."""
    lines = ["| model | phase | GB/s | % of the read bandwidth | GFLOP/s | % of the peak | "
             "memory, MB | bound by, % of the time |", "|---|---|---:|---:|---:|---:|---:|---|"]
    for result in results:
        if result.limits is None:
            continue
        for whole in wholes(result):
            gb_s, gflops = whole["gb_s"], whole["gflops"]
            lines.append(
                f"| {result.run.name} | {whole['step']} | {float(gb_s or 0):.1f} | "
                f"{per_cent(gb_s, result.limits.read_gb_s)} | {float(gflops or 0):.0f} | "
                f"{per_cent(gflops, result.limits.gflops)} | {result.peak_bytes / 1e6:.0f} | "
                f"{bound(result, whole['step'])} |")
    return lines


def model_table(results: list[Result]) -> list[str]:
    lines = ["| model | phase | time | % of the roof | shares by kernel, % | "
             "limit of the largest |", "|---|---|---:|---:|---|---:|"]
    for result in results:
        for whole in wholes(result):
            shares = shares_by_kernel(result, whole["step"])
            roof = f"{float(whole['roof_pct']):.0f}" if whole["roof_pct"] else "–"
            told = ", ".join(f"{kernel} {share:.1f}" for kernel, share in shares)
            lines.append(f"| {result.run.name} | {whole['step']} | "
                         f"{time_text(float(whole['p50_ns']))} | {roof} | {told} | "
                         f"{limit(shares[0][1])} |")
    return lines


def speed(proof: Cells, which: str) -> str:
    value, low, high = (float(proof[which + end]) for end in ("", "_lo", "_hi"))
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def proof_table(results: list[Result]) -> list[str]:
    lines = ["| model | phase | swap | share, % | predicted | measured | difference, points | "
             "of it: swapped steps | other steps |", "|---|---|---|---:|---:|---:|---:|---:|---:|"]
    for result in results:
        for proof in result.proofs:
            lines.append(
                f"| {result.run.name} | {proof['phase']} | {proof['swap']} | "
                f"{float(proof['share_pct']):.1f} | {speed(proof, 'predicted')} | "
                f"{speed(proof, 'measured')} | {float(proof['difference_points']):+.2f} | "
                f"{float(proof['from_swapped_points']):+.2f} | "
                f"{float(proof['from_others_points']):+.2f} |")
    return lines


def verdict(results: list[Result]) -> str:
    proofs = [(result, proof) for result in results for proof in result.proofs]
    if not proofs:
        return "No swap was measured."
    close = [abs(float(proof["difference_points"])) <= CLOSE for _, proof in proofs]
    text = (f"For {sum(close)} of {len(proofs)} swaps ({100 * sum(close) / len(proofs):.0f} %) the "
            f"measured gain is within ± {CLOSE:g} points of the prediction.")
    far = [f"{result.run.name} {proof['swap']} ({float(proof['difference_points']):+.1f})"
           for (result, proof), good in zip(proofs, close) if not good]
    return text + (f" The others: {', '.join(far)}." if far else "")


def document(results: list[Result], failed: list[str]) -> str:
    whole = results[0].rows[0]
    lines = [f"# Models on {whole['cpu']}, {whole['threads']} threads", "",
             f"Measured {whole['test_time'][:10]} by `scripts/models.sh`, commit "
             f"{whole['build_commit']}. docs/models.md explains the columns.", "",
             *model_table(results), "", "## Shares of the machine's limits", "",
             "Bytes are those that must be read and written. The limits are the read bandwidth and "
             "float32's multiply-adds, of all threads.", "", *limits_table(results), "",
             "## Predicted and measured", "",
             "Speed of the whole with other variants, relative to the original.", "",
             verdict(results), "", *proof_table(results), "",
             "![Shares by kernel; predicted and measured speed](models.svg)", ""]
    lines += [f"Not measured: {text}" for text in failed]
    return "\n".join(lines).rstrip("\n") + "\n"

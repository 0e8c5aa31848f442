#!/usr/bin/env python3
"""Draws the roofline of one run: roofline_svg.py RESULT.json FILE.svg [--threads N].

RESULT.json is what `rooflane bench --json` wrote. Roofs are that run's measured ceilings at N
threads (default: the most that were measured): one line per plateau of the bandwidth curve and one
per ISA target's FMA peak. Points are the PASSED rows on the host's CPU.

Matplotlib is installed into an environment of its own beside the build when it is missing.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import venv
from pathlib import Path

ENVIRONMENT = Path(__file__).resolve().parent.parent / "build" / "python-charts"


def restart_with_matplotlib():
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "matplotlib"], check=True)
    os.environ["ROOFLANE_CHARTS_READY"] = "1"
    os.execv(python, [str(python), *sys.argv])


try:
    import matplotlib
except ImportError:
    if os.environ.get("ROOFLANE_CHARTS_READY"):
        raise
    restart_with_matplotlib()

matplotlib.use("svg")
from matplotlib import pyplot as plt  # noqa: E402: only after the backend is chosen
from matplotlib.lines import Line2D  # noqa: E402

MARKERS = "osD^vP*X"
COLOURS = ["#4C6A92", "#C8553D", "#2A9D8F", "#E9A23B", "#7A5195", "#555555"]


def plateau_bandwidths(curve):
    """(label, GB/s) per plateau: the best copy or read bandwidth of its points."""
    bandwidths, smallest = [], 0
    for plateau in curve["plateaus"]:
        largest = plateau["largest_footprint_bytes"]
        inside = [p for p in curve["points"] if smallest < p["footprint_bytes"] <= largest]
        if inside:
            best = max(max(p["copy_gb_s"], p["read_gb_s"]) for p in inside)
            if plateau is curve["plateaus"][-1]:
                last = inside[-1]
                best = max(last["copy_gb_s"], last["read_gb_s"])
            bandwidths.append((plateau["label"], best))
        smallest = largest
    return bandwidths


def distinct_peaks(peaks):
    """(names, GFLOP/s) of the targets, those within a tenth of one another on one line."""
    groups = []
    for isa, peak in sorted(peaks.items(), key=lambda item: -item[1]):
        if groups and groups[-1][1] < 1.1 * peak:
            groups[-1][0].append(isa)
        else:
            groups.append(([isa], peak))
    return [(", ".join(names), peak) for names, peak in groups]


def draw(document, threads, path):
    ceilings = document["context"]["ceilings"]
    curves = {c["threads"]: c for c in ceilings["bandwidth"] if not c["device"]}
    threads = threads or max(curves)
    if threads not in curves:
        sys.exit(f"--threads {threads}: measured are {sorted(curves)}")
    peaks = {f["isa"]: f["gflops"] for f in ceilings["fma"]
             if not f["device"] and f["threads"] == threads}
    rows = [r for r in document["rows"]
            if r["status"] == "PASSED" and r["gflops"] and (r["threads"] == threads
                                                            or r["variant"] == "scalar")]
    kernels = list(dict.fromkeys(r["kernel"] for r in rows))
    variants = list(dict.fromkeys(r["variant"] for r in rows))
    marker = dict(zip(kernels, MARKERS))
    colour = dict(zip(variants, COLOURS))

    plt.rcParams.update({"svg.hashsalt": "rooflane", "svg.fonttype": "none", "font.size": 10})
    figure, axes = plt.subplots(figsize=(9, 5.4), constrained_layout=True)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=10)
    least = min([r["ai"] for r in rows] + [0.25]) / 2
    most = max([r["ai"] for r in rows] + [64]) * 2
    top = max(peaks.values())
    axes.set_xlim(least, most)
    axes.set_ylim(min([r["gflops"] for r in rows] + [top]) / 2, top * 1.6)
    bandwidths = plateau_bandwidths(curves[threads])
    for label, bandwidth in bandwidths:
        axes.plot([least, top / bandwidth], [least * bandwidth, top], color="#9aa3ad", linewidth=1)
    for names, peak in distinct_peaks(peaks):
        axes.axhline(peak, color="#9aa3ad", linewidth=1, linestyle="-" if peak == top else ":")
        axes.annotate(f"{names} {peak:.0f} GFLOP/s", (12, peak), ha="center", va="bottom",
                      fontsize=8, color="#5b6570")
    for row in rows:
        axes.plot(row["ai"], row["gflops"], marker=marker[row["kernel"]], markersize=6,
                  color=colour[row["variant"]], markeredgecolor="white", linestyle="none")
    axes.set_xlabel("arithmetic intensity, FLOP/byte")
    axes.set_ylabel("GFLOP/s")
    machine = rows[0]["cpu"] if rows else ""
    axes.set_title(f"{machine}, {threads} thread{'s' if threads > 1 else ''}: "
                   "measured ceilings and what each variant reached", fontsize=11)
    axes.grid(True, which="major", color="#eceff1")
    handles = [Line2D([], [], color=colour[v], marker="o", linestyle="none", label=v)
               for v in variants]
    handles += [Line2D([], [], color="#222222", marker=marker[k], linestyle="none", label=k)
                for k in kernels]
    axes.legend(handles=handles, fontsize=8, loc="lower right", ncol=2)
    # Roof names last: their angle is that of the lines on the finished layout.
    figure.draw_without_rendering()
    (x0, y0), (x1, y1) = axes.transData.transform([(1, 1), (2, 2)])
    angle = math.degrees(math.atan2(y1 - y0, x1 - x0))
    for label, bandwidth in bandwidths:
        axes.annotate(f"{label} {bandwidth:.0f} GB/s", (least * 1.1, least * 1.1 * bandwidth),
                      xytext=(0, 4), textcoords="offset points", rotation=angle,
                      rotation_mode="anchor", fontsize=8, color="#5b6570")
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", help="RESULT.json of `rooflane bench --json`")
    parser.add_argument("svg", help="file to write")
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    with open(arguments.result, encoding="utf-8") as file:
        draw(json.load(file), arguments.threads, arguments.svg)


if __name__ == "__main__":
    main()

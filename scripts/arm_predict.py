#!/usr/bin/env python3
"""What the cost model of the hwy GEMM expects of ARM cores that are not here: arm_predict.py
[--shape S]... prints a table of one thread's predicted times, as Markdown.

No measurement: the model is asked in an aarch64 build under qemu-user (arm.sh builds it), with
traits from vendors' documents. What those do not give (rates of L2, L3 and memory, copies) is
derived as for a machine that was never calibrated (src/core/traits.cpp); GEMM of these sizes hardly
depends on it. Python's standard library only.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILDS = ROOT / "build-arm"
KIB = 1 << 10
SHAPES = ["gemm:m=64,n=64,k=64", "gemm:m=256,n=256,k=256", "gemm:m=1024,n=1024,k=1024",
          "gemm:m=1,n=4096,k=4096,trans_b=1", "gemm:m=128,n=768,k=768,trans_b=1",
          "gemm:m=512,n=3072,k=768,trans_b=1"]


@dataclass(frozen=True)
class Core:
    """A core at a clock rate. Per cycle: vectors multiplied and added, bytes loaded and stored."""
    name: str
    build: str  # arm.sh's configuration with the core's vectors
    isa: str
    ghz: float
    lanes: int
    fma: int
    load: int
    store: int
    l1: int
    l2: int
    l3: int
    source: str

    @property
    def peak(self) -> float:
        """flop/s"""
        return self.ghz * 1e9 * self.fma * self.lanes * 2


V1 = "Arm Neoverse V1 Software Optimization Guide (PJDOC-466751330-9685) and Core TRM (101427)"
V2 = "Arm Neoverse V2 Software Optimization Guide (PJDOC-466751330-593177) and Core TRM (102375)"
CORES = [
    Core("Neoverse V1 (Graviton 3), SVE", "256", "SVE_256", 2.6, 8, 2, 64, 32, 64 * KIB,
         1024 * KIB, 32768 * KIB, V1),
    Core("Neoverse V1 (Graviton 3), NEON", "256", "NEON", 2.6, 4, 4, 48, 32, 64 * KIB,
         1024 * KIB, 32768 * KIB, V1),
    Core("Neoverse V2 (Graviton 4), SVE2", "128", "SVE2_128", 2.8, 4, 4, 48, 32, 64 * KIB,
         2048 * KIB, 36864 * KIB, V2),
    Core("Apple M1 Firestorm, NEON", "256", "NEON", 3.2, 4, 4, 48, 32, 128 * KIB, 12288 * KIB,
         8192 * KIB, "Apple Silicon CPU Optimization Guide; D. Johnson, Firestorm overview"),
]


def traits_text(core: Core, machine: str) -> str:
    """A file of traits (ROOFLANE_TRAITS) for a core, named after the machine that reads it."""
    hz = core.ghz * 1e9
    read = [core.load, min(32, core.load), 10, 4]
    write = [core.store, min(16, core.store), 5, 2]
    rates = [("read", read), ("write", write), ("stream", [4])]
    lines = ["rooflane-traits 1", f"machine {machine}", "date from documents",
             f"isa {core.isa}", "threads 1", f"fma {core.isa} {core.peak:.0f} {core.peak:.0f}",
             f"l1_bytes {core.l1}", f"l2_bytes {core.l2}", f"l3_bytes {max(core.l2, core.l3)}"]
    for who in ("one", "many"):
        lines += [f"{who}.{key} " + " ".join(f"{hz * value:.0f}" for value in values)
                  for key, values in rates]
    lines += [f"transpose {8 * hz:.0f}", "region 0", f"task {10 / hz:.3e}", "end", ""]
    return "\n".join(lines)


def ask(core: Core, requests: list[dict], traits: str) -> list[dict]:
    """The answers of `rooflane evaluate` to requests. It starts workers, and so needs a kernel that
    knows qemu: a namespace of its own registers it."""
    program = BUILDS / core.build / "rooflane"
    if not program.exists():
        sys.exit(f"arm_predict: no {program}: scripts/arm.sh {core.build} builds it")
    env = {**os.environ, "ROOFLANE_TRAITS": traits, "ROOFLANE_TUNED": "none",
           "QEMU_CPU": f"max,sve-max-vq={int(core.build) // 128}",
           "QEMU_LD_PREFIX": str(BUILDS / "sysroot")}
    command = [str(ROOT / "scripts/arm_programs.sh"), "--known", str(program), "evaluate"]
    done = subprocess.run(command, env=env, text=True, capture_output=True, check=False,
                          input="".join(json.dumps(r) + "\n" for r in requests))
    answers = [json.loads(line) for line in done.stdout.splitlines()][1:]
    if len(answers) != len(requests) or not all(answer["ok"] for answer in answers):
        sys.exit(f"arm_predict: {' '.join(command)}: {done.stdout}{done.stderr}")
    return answers


def predict(core: Core, shapes: list[str]) -> list[float]:
    """Predicted nanoseconds of the best schedule of each shape."""
    requests = [{"op": "open", "shape": shape, "variant": "hwy", "threads": 1, "isa": core.isa}
                for shape in shapes]
    machine = ask(core, requests[:1], "none")[0]["machine"]["key"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "traits"
        file.write_text(traits_text(core, machine), encoding="utf-8")
        answers = ask(core, requests, str(file))
    for answer in answers:
        if not answer["traits"]["origin"].startswith("measured"):
            sys.exit(f"arm_predict: the traits were not taken: {answer['traits']}")
    return [answer["candidates"][0]["predicted_ns"] for answer in answers]


def flops(shape: str) -> float:
    sizes = dict(part.split("=") for part in shape.split(":")[1].split(","))
    return 2.0 * int(sizes["m"]) * int(sizes["n"]) * int(sizes["k"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", action="append")
    shapes = parser.parse_args().shape or SHAPES
    print("| one thread | peak GFLOP/s | " + " | ".join(shapes) + " |")
    print("|---" * (len(shapes) + 2) + "|")
    for core in CORES:
        times = predict(core, shapes)
        cells = [f"{1e-3 * ns:.1f} µs, {flops(shape) / ns:.1f} GFLOP/s, "
                 f"{100 * flops(shape) / ns * 1e9 / core.peak:.0f} %"
                 for shape, ns in zip(shapes, times)]
        row = [f"{core.name}, {core.ghz} GHz", f"{core.peak * 1e-9:.1f}", *cells]
        print(f"| {' | '.join(row)} |")
    print("\nSources: " + "; ".join(dict.fromkeys(core.source for core in CORES)) + ".")


if __name__ == "__main__":
    main()

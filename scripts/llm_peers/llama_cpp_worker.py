"""llama.cpp as a process that answers JSON lines: llama_cpp_worker.py FILE.gguf CONTEXT [fast]

Runs in the environment that llm_server.py makes. Float32 throughout: the cache of keys and values
too, and without llama.cpp's flash attention, which rounds to float16 on the way (logits of SmolLM2
err by 6e-2 with it, by 3e-5 without); `fast`: as it comes, with caches of float16 and what it
chooses itself. Requests, one a line:

  {"do":"tokenize","text":...}                            {"ids":[...]}
  {"do":"greedy","ids":[...],"tokens":N,"logits":FILE}    {"ids":[...]}; FILE gets their logits
  {"do":"threads","threads":N}                            {}
  {"do":"about"}                                          {"text":...}: version, build
  {"do":"prefill"|"decode","depth":D,"tokens":N}          {"ns":...}

Timing is llama-bench's: prefill is one batch of N tokens after D, decode N tokens one by one, each
with its logits; what lies before is not timed, and every request leaves the cache empty.
"""
from __future__ import annotations

import ctypes
import json
import sys
import time
from typing import Any

import llama_cpp as api
import numpy as np

F32 = 0  # GGML_TYPE_F32
SEED = 38  # of the token ids that are timed


class Model:
    """A model with one context."""

    def __init__(self, path: str, context: int, fast: bool) -> None:
        api.llama_backend_init()
        self._silent = api.llama_log_callback(lambda level, text, data: None)
        api.llama_log_set(self._silent, ctypes.c_void_p(0))
        self._model = api.llama_model_load_from_file(path.encode(),
                                                     api.llama_model_default_params())
        if self._model is None:
            sys.exit(f"llama.cpp cannot read {path}")
        settings = api.llama_context_default_params()
        settings.n_ctx = context
        settings.n_batch = context
        if not fast:
            settings.type_k = settings.type_v = F32
            settings.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self._context = api.llama_init_from_model(self._model, settings)
        if self._context is None:
            sys.exit("llama.cpp makes no context")
        self._vocabulary = api.llama_model_get_vocab(self._model)
        self.size = api.llama_vocab_n_tokens(self._vocabulary)
        self._ids = np.random.default_rng(SEED).integers(0, self.size, context).tolist()

    def set_threads(self, threads: int) -> None:
        """For prefill and decode alike."""
        api.llama_set_n_threads(self._context, threads, threads)

    def tokenize(self, text: str) -> list[int]:
        """Control tokens may be spelt in the text; the file says whether a begin is added."""
        raw = text.encode("utf-8")
        room = len(raw) + 8
        ids = (api.llama_token * room)()
        count = api.llama_tokenize(self._vocabulary, raw, len(raw), ids, room, True, True)
        if count < 0:
            sys.exit("llama.cpp does not tokenize")
        return list(ids[:count])

    def clear(self) -> None:
        """Empties the cache."""
        api.llama_memory_clear(api.llama_get_memory(self._context), False)

    def _append(self, ids: list[int]) -> None:
        tokens = (api.llama_token * len(ids))(*ids)
        if api.llama_decode(self._context, api.llama_batch_get_one(tokens, len(ids))) != 0:
            sys.exit("llama_decode failed")
        api.llama_synchronize(self._context)

    def _logits(self) -> np.ndarray:
        pointer = api.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(pointer, shape=(self.size,)).copy()

    def greedy(self, ids: list[int], tokens: int) -> tuple[list[int], np.ndarray]:
        """The likeliest tokens after `ids` and the logits each was chosen by; no token ends it."""
        self.clear()
        chosen, rows = [], np.empty((tokens, self.size), np.float32)
        feed = ids
        for row in rows:
            self._append(feed)
            row[:] = self._logits()
            feed = [int(row.argmax())]
            chosen += feed
        return chosen, rows

    def nanoseconds(self, kind: str, depth: int, tokens: int) -> int:
        """The time of one prefill or decode."""
        self.clear()
        if depth:
            self._append(self._ids[:depth])
        begin = time.perf_counter_ns()
        if kind == "prefill":
            self._append(self._ids[:tokens])
        else:
            for each in self._ids[:tokens]:
                self._append([each])
        return time.perf_counter_ns() - begin


def about() -> str:
    """llama-cpp-python's version and the instruction sets that llama.cpp was built with."""
    told = api.llama_print_system_info().decode()
    flags = [part.split("=")[0].strip() for part in told.split(":", 1)[-1].split("|")
             if part.strip().endswith("= 1")]
    return f"llama-cpp-python {api.__version__}: {' '.join(flags)}"


def answer(model: Model, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    match request["do"]:
        case "tokenize":
            return {"ids": model.tokenize(request["text"])}
        case "greedy":
            ids, logits = model.greedy(request["ids"], request["tokens"])
            np.save(request["logits"], logits)
            return {"ids": ids}
        case "threads":
            model.set_threads(request["threads"])
            return {}
        case "about":
            return {"text": about()}
        case kind:
            return {"ns": model.nanoseconds(kind, request["depth"], request["tokens"])}


def main() -> None:
    """Serves until the input ends."""
    model = Model(sys.argv[1], int(sys.argv[2]), "fast" in sys.argv[3:])
    for line in sys.stdin:
        print(json.dumps(answer(model, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()

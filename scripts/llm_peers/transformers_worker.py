"""transformers as a process that answers JSON lines: transformers_worker.py FILE.gguf [fast [TYPE]]

Runs in the environment that llm_compare.py makes for it. The model is built from the file's
metadata and given the file's tensors, dequantised to float32: nothing is downloaded, and none of
transformers' own reading of GGUF is used. `fast`: PyTorch's own attention instead of plain
products, weights of TYPE (float32, bfloat16). Requests, one a line:

  {"do":"logits","ids":[...],"first":N,"logits":FILE}    {}; FILE gets the logits after each
                                                         token from number N on
  {"do":"threads","threads":N}                           {}
  {"do":"about"}                                         {"text":...}: versions, build
  {"do":"prefill"|"decode","depth":D,"tokens":N}         {"ns":...}, as llama_cpp_worker.py
"""
from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["ONEDNN_DEFAULT_FPMATH_MODE"] = "STRICT"

import gguf  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from gguf.quants import dequantize  # noqa: E402
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM  # noqa: E402

SEED = 38  # of the token ids that are timed

# The file's names and transformers', of a layer and of the rest.
LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
OTHERS = {"token_embd.weight": "model.embed_tokens.weight",
          "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}


def name_of(tensor: str) -> str:
    """transformers' name of a tensor of the file."""
    if tensor in OTHERS:
        return OTHERS[tensor]
    _, layer, name, _ = tensor.split(".")
    return f"model.layers.{layer}.{LAYER[name]}.weight"


def half_split(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k in the order in which the first and the second half of a head rotate together;
    in the file neighbours do."""
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, rows.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows.shape))


def config_of(reader: gguf.GGUFReader, tied: bool, attention: str) -> LlamaConfig:
    """The sizes and constants in the metadata."""
    def value(name: str, otherwise: Any = None) -> Any:
        field = reader.fields.get(f"llama.{name}")
        return otherwise if field is None else field.contents()

    heads = value("attention.head_count")
    vocabulary = next(int(tensor.shape[1]) for tensor in reader.tensors
                      if tensor.name == "token_embd.weight")
    return LlamaConfig(
        vocab_size=vocabulary, hidden_size=value("embedding_length"),
        intermediate_size=value("feed_forward_length"), num_hidden_layers=value("block_count"),
        num_attention_heads=heads, num_key_value_heads=value("attention.head_count_kv", heads),
        max_position_embeddings=value("context_length"),
        rms_norm_eps=value("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": value("rope.freq_base", 10000.0)},
        tie_word_embeddings=tied, attn_implementation=attention)


def load(path: str, attention: str = "eager") -> LlamaForCausalLM:
    """The model with the file's weights; every one must be given, and none be left over."""
    reader = gguf.GGUFReader(path)
    tied = all(tensor.name != "output.weight" for tensor in reader.tensors)
    config = config_of(reader, tied, attention)
    model = LlamaForCausalLM(config).to(torch.float32).eval()
    rotated_heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    weights = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        part = tensor.name.split(".")[-2]
        if part in rotated_heads:
            values = half_split(values, rotated_heads[part])
        weights[name_of(tensor.name)] = torch.from_numpy(np.array(values))
    if tied:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights, strict=True)
    return model


def about() -> str:
    """Versions and what PyTorch was built with."""
    capability = torch.backends.cpu.get_cpu_capability()
    return f"transformers {transformers.__version__}, PyTorch {torch.__version__}: {capability}"


def nanoseconds(model: LlamaForCausalLM, kind: str, depth: int, tokens: int) -> int:
    """The time of one prefill or decode behind so many tokens."""
    cache = DynamicCache()
    ids = np.random.default_rng(SEED).integers(0, model.config.vocab_size, (1, depth + tokens))

    def append(first: int, end: int) -> None:
        model(torch.from_numpy(ids[:, first:end]), past_key_values=cache, use_cache=True,
              logits_to_keep=1)

    if depth:
        append(0, depth)
    begin = time.perf_counter_ns()
    step = tokens if kind == "prefill" else 1
    for first in range(depth, depth + tokens, step):
        append(first, first + step)
    return time.perf_counter_ns() - begin


def answer(model: LlamaForCausalLM, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    match request["do"]:
        case "logits":
            logits = model(torch.tensor([request["ids"]]), use_cache=False).logits[0]
            np.save(request["logits"], logits[request["first"]:].numpy())
            return {}
        case "threads":
            torch.set_num_threads(request["threads"])
            return {}
        case "about":
            return {"text": about()}
        case kind:
            return {"ns": nanoseconds(model, kind, request["depth"], request["tokens"])}


def main() -> None:
    """Serves until the input ends."""
    torch.set_float32_matmul_precision("highest")
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    fast = sys.argv[2:3] == ["fast"]
    model = load(sys.argv[1], "sdpa" if fast else "eager")
    if sys.argv[3:]:
        model = model.to(getattr(torch, sys.argv[3]))
    for line in sys.stdin:
        with torch.inference_mode():
            told = answer(model, json.loads(line))
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()

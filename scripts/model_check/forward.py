"""The models of bench/models, written down once more from their papers: functions from symbols and
tensors to outputs. Knows nothing of model files; `op` is one of operations.py.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

Symbols = dict[str, int]
Tensors = Callable[[str], Any]  # a weight, an input or a state by name


def split(x: Any, s: Symbols, heads: int) -> Any:
    """[batch·len, heads·dim] -> [batch, heads, len, dim]."""
    batch = s.get("batch", 1)
    return x.reshape(batch, x.shape[0] // batch, heads, -1).swapaxes(1, 2)


def joined(x: Any) -> Any:
    batch, heads, length, dim = x.shape
    return x.swapaxes(1, 2).reshape(batch * length, heads * dim)


def block(op: Any, s: Symbols, t: Tensors) -> dict[str, Any]:
    scores = op.softmax(op.linear(t("x"), t("linear")))
    return {"y": op.layer_norm(scores, t("gamma"), t("beta"), 1e-5)}


def transformer_gelu(op: Any, s: Symbols, t: Tensors) -> dict[str, Any]:
    x, width = t("x"), s["width"]
    normed = op.layer_norm(x, t("norm1.gamma"), t("norm1.beta"), 1e-5)
    qkv = op.linear(normed, t("qkv.weight"), t("qkv.bias"))
    q, k, v = (split(qkv[:, i * width:(i + 1) * width], s, s["heads"]) for i in range(3))
    heard = joined(op.attention(q, k, v, True))
    x = x + op.linear(heard, t("proj.weight"), t("proj.bias"))
    normed = op.layer_norm(x, t("norm2.gamma"), t("norm2.beta"), 1e-5)
    wide = op.gelu_tanh(op.linear(normed, t("up.weight"), t("up.bias")))
    return {"y": x + op.linear(wide, t("down.weight"), t("down.bias"))}


def transformer_swiglu(op: Any, s: Symbols, t: Tensors) -> dict[str, Any]:
    x, width, kv = t("x"), s["width"], s["kv_width"]
    qkv = op.linear(op.rms_norm(x, t("norm1"), 1e-5), t("qkv.weight"))
    q = op.rope(split(qkv[:, :width], s, s["heads"]), s["base"], 0, False)
    k = op.rope(split(qkv[:, width:width + kv], s, s["kv_heads"]), s["base"], 0, False)
    v = split(qkv[:, width + kv:], s, s["kv_heads"])
    x = x + op.linear(joined(op.attention(q, k, v, True)), t("proj.weight"))
    gate_up = op.linear(op.rms_norm(x, t("norm2"), 1e-5), t("gate_up.weight"))
    wide = op.silu(gate_up[:, :s["hidden"]]) * gate_up[:, s["hidden"]:]
    return {"y": x + op.linear(wide, t("down.weight"))}


def gpt2(op: Any, s: Symbols, t: Tensors) -> dict[str, Any]:
    batch, length, width = s["batch"], s["len"], s["width"]
    h = t("wte.weight")[t("ids")].reshape(batch, length, width) + t("wpe.weight")[:length]
    h = h.reshape(batch * length, width)
    for layer in range(s["layers"]):
        def w(name: str, layer: int = layer) -> Any:
            return t(f"h.{layer}.{name}")
        normed = op.layer_norm(h, w("ln_1.weight"), w("ln_1.bias"), 1e-5)
        qkv = normed @ w("attn.c_attn.weight") + w("attn.c_attn.bias")
        q, k, v = (split(qkv[:, i * width:(i + 1) * width], s, s["heads"]) for i in range(3))
        heard = joined(op.attention(q, k, v, True))
        h = h + heard @ w("attn.c_proj.weight") + w("attn.c_proj.bias")
        normed = op.layer_norm(h, w("ln_2.weight"), w("ln_2.bias"), 1e-5)
        wide = op.gelu_tanh(normed @ w("mlp.c_fc.weight") + w("mlp.c_fc.bias"))
        h = h + wide @ w("mlp.c_proj.weight") + w("mlp.c_proj.bias")
    h = op.layer_norm(h, t("ln_f.weight"), t("ln_f.bias"), 1e-5)
    return {"logits": op.linear(h.reshape(batch, length, width)[:, -1], t("wte.weight"))}


def bert(op: Any, s: Symbols, t: Tensors) -> dict[str, Any]:
    batch, length, width = s["batch"], s["len"], s["width"]
    h = t("embeddings.word_embeddings.weight")[t("ids")].reshape(batch, length, width)
    h = h + t("embeddings.position_embeddings.weight")[:length]
    h = h + t("embeddings.token_type_embeddings.weight")[0]
    h = op.layer_norm(h, t("embeddings.LayerNorm.weight"), t("embeddings.LayerNorm.bias"), 1e-12)
    h = h.reshape(batch * length, width)
    for layer in range(s["layers"]):
        def dense(x: Any, name: str, layer: int = layer) -> Any:
            name = f"encoder.layer.{layer}.{name}"
            return op.linear(x, t(name + ".weight"), t(name + ".bias"))

        def norm(x: Any, name: str, layer: int = layer) -> Any:
            name = f"encoder.layer.{layer}.{name}.LayerNorm"
            return op.layer_norm(x, t(name + ".weight"), t(name + ".bias"), 1e-12)
        q, k, v = (split(dense(h, f"attention.self.{name}"), s, s["heads"])
                   for name in ("query", "key", "value"))
        heard = joined(op.attention(q, k, v, False))
        h = norm(h + dense(heard, "attention.output.dense"), "attention.output")
        wide = op.gelu(dense(h, "intermediate.dense"))
        h = norm(h + dense(wide, "output.dense"), "output")
    first = h.reshape(batch, length, width)[:, 0]
    return {"pooled": op.tanh(op.linear(first, t("pooler.dense.weight"), t("pooler.dense.bias")))}


def llama(op: Any, s: Symbols, t: Tensors) -> dict[str, Any]:
    """A phase reads the cache, whoever computed it; the phase's own keys and values, also in the
    cache, are computed again."""
    past, kv = s["first"], s["kv_width"]
    h = t("token_embd")[t("ids")]
    for layer in range(s["layers"]):
        def w(name: str, layer: int = layer) -> Any:
            return t(f"blk.{layer}.{name}")
        normed = op.rms_norm(h, w("attn_norm"), 1e-5)
        qkv = op.linear(normed, w("attn_qkv"))
        width = s["width"]
        q = op.rope(split(qkv[:, :width], {}, s["heads"]), 1e5, past, True)
        own = qkv[:, width:]
        k = op.rope(split(own[:, :kv], {}, s["kv_heads"]), 1e5, past, True)
        before = t(f"cache.{layer}")[:, :, :past]
        keys = op.concatenate([before[:, :s["kv_heads"]], k], 2)
        values = op.concatenate([before[:, s["kv_heads"]:],
                                 split(own[:, kv:], {}, s["kv_heads"])], 2)
        h = h + op.linear(joined(op.attention(q, keys, values, True)), w("attn_output"))
        gate_up = op.linear(op.rms_norm(h, w("ffn_norm"), 1e-5), w("ffn_gate_up"))
        wide = op.silu(gate_up[:, :s["hidden"]]) * gate_up[:, s["hidden"]:]
        h = h + op.linear(wide, w("ffn_down"))
    return {"logits": op.linear(op.rms_norm(h[-1:], t("output_norm"), 1e-5), t("output"))}


def vit(op: Any, s: Symbols, t: Tensors) -> dict[str, Any]:
    batch, side, patch, width = s["batch"], s["side"], s["patch"], s["width"]
    cut = t("images").reshape(batch, 3, side, patch, side, patch)
    # batch, row, column, 3, patch, patch
    cut = cut.swapaxes(1, 2).swapaxes(3, 4).swapaxes(2, 3)
    cut = cut.reshape(batch, side * side, 3 * patch * patch)
    name = "embeddings.patch_embeddings.projection"
    x = op.linear(cut, t(name + ".weight"), t(name + ".bias"))
    token = t("embeddings.cls_token").reshape(1, 1, width)
    x = op.concatenate([op.concatenate([token] * batch, 0), x], 1)
    h = (x + t("embeddings.position_embeddings")).reshape(-1, width)
    for layer in range(s["layers"]):
        def dense(x: Any, name: str, layer: int = layer) -> Any:
            name = f"encoder.layer.{layer}.{name}"
            return op.linear(x, t(name + ".weight"), t(name + ".bias"))

        def norm(x: Any, name: str, layer: int = layer) -> Any:
            name = f"encoder.layer.{layer}.{name}"
            return op.layer_norm(x, t(name + ".weight"), t(name + ".bias"), 1e-12)
        normed = norm(h, "layernorm_before")
        q, k, v = (split(dense(normed, f"attention.attention.{part}"), s, s["heads"])
                   for part in ("query", "key", "value"))
        h = h + dense(joined(op.attention(q, k, v, False)), "attention.output.dense")
        wide = op.gelu(dense(norm(h, "layernorm_after"), "intermediate.dense"))
        h = h + dense(wide, "output.dense")
    scores = q[:, :, 0:1] @ k.swapaxes(2, 3) / s["head_dim"] ** 0.5
    first = op.layer_norm(h, t("layernorm.weight"), t("layernorm.bias"), 1e-12)
    first = first.reshape(batch, -1, width)[:, 0]
    return {"logits": op.linear(first, t("classifier.weight"), t("classifier.bias")),
            "class_attention": op.softmax(scores)}


def gnn(op: Any, s: Symbols, t: Tensors) -> dict[str, Any]:
    width, heads, hidden, nodes = s["width"], s["heads"], s["hidden"], s["nodes"]
    source, target, graph = t("source"), t("target"), t("graph")
    h = op.linear(t("features"), t("in.weight"))
    for layer in range(s["layers"]):
        def w(name: str, layer: int = layer) -> Any:
            return t(f"layer.{layer}.{name}")
        qkv = op.linear(op.layer_norm(h, w("norm1.gamma"), w("norm1.beta"), 1e-5),
                        w("qkv.weight"))
        keys = qkv[:, width:2 * width][source] + op.linear(t("edge_features"), w("edge.weight"))
        queries = qkv[:, :width][target]
        scores = (queries * keys).reshape(-1, heads, width // heads).sum(-1)
        weights = op.segment_softmax(scores / (width // heads) ** 0.5, target, nodes)
        values = qkv[:, 2 * width:][source].reshape(-1, heads, width // heads)
        heard = op.segment_sum((weights[..., None] * values).reshape(-1, width), target, nodes)
        h = h + op.linear(heard, w("out.weight"))
        gate_up = op.linear(op.layer_norm(h, w("norm2.gamma"), w("norm2.beta"), 1e-5),
                            w("gate_up.weight"))
        h = h + op.linear(op.silu(gate_up[:, :hidden]) * gate_up[:, hidden:], w("down.weight"))
    claims = op.segment_softmax(op.linear(h, t("pool.weight")), graph, s["graphs"])
    pooled = op.segment_sum(claims * h, graph, s["graphs"])
    return {"y": op.linear(pooled, t("last.weight"))}


MODELS = {"block": block, "transformer-gelu": transformer_gelu,
          "transformer-swiglu": transformer_swiglu, "gpt2-small": gpt2, "bert-base": bert,
          "llama": llama, "vit-b16": vit, "gnn": gnn}

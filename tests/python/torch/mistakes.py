# SPDX-License-Identifier: Apache-2.0
"""What could go wrong in each family of decoders, as edits of its imported graph.

MISTAKES change the mathematics, so the check of logits must fail. HARMLESS ones do not, each with the reason, so it
must pass: a check that fails there compares something else than mathematics.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from graph_edits import Edit, behind, beside, both, bypassed, exchange, module_becomes, text, value, weights

HEADS, HEAD = 4, 16  # of the small configurations

# --- Changes of weights


def _theta(new: float, old: float = 1e4) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda frequencies: frequencies ** (math.log(new) / math.log(old))


def _pairs(rows: torch.Tensor) -> torch.Tensor:
    """Rows of each head in the order of interleaved rotation: 0, 8, 1, 9, ..."""
    return rows.unflatten(0, (-1, 2, HEAD // 2)).transpose(1, 2)


def _pair_columns(merged: torch.Tensor) -> torch.Tensor:
    """The same along the last axis, where matrices stand the other way round."""
    return _pairs(merged.movedim(-1, 0)).reshape_as(merged.movedim(-1, 0)).movedim(0, -1)


def _next_head(rows: torch.Tensor) -> torch.Tensor:
    return rows.roll(HEAD, 0)


def _all_queries_first(rows: torch.Tensor) -> torch.Tensor:
    """Rows in the order query, key, value, of what stands head by head."""
    return rows.unflatten(0, (HEADS, 3, HEAD)).transpose(0, 1)


def _thirds(change: Callable[..., torch.Tensor], axis: int = 0) -> Callable[[torch.Tensor], torch.Tensor]:
    """Changes queries, keys and values, side by side along an axis."""
    return lambda merged: torch.cat(change(*merged.chunk(3, axis)), axis)


def _zero(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(tensor)


def _one_more(weight: torch.Tensor) -> torch.Tensor:
    return weight + 1


# --- Changes that several families share

ATTENTION = r"scope=\"[^\"]*(?:attn|attention)\""
SCALE = {"scale x 1.1": value(0.25, 0.275, ATTENTION)}
WRONG_KV_HEAD = {"kv heads dealt in turn": text(r"= reshape.*\[B, 2, 1, T, 16\] ?\}", "[B, 2, 1,", "[B, 1, 2,")}
SELF_HIDDEN = {"a token does not see itself": text("= less_equal", "less_equal", "less")}
THETA = {"rope theta doubled": weights("inv_freq", _theta(2e4))}
ROTATION = {"rotated backwards": value(1.0, -1.0, r"= mul\(%sin,")}
LAYOUT = {"q and k interleaved": weights(r"[qk]_proj\.(?:weight|bias)", _pairs)}
WINDOW = {f"window {size}": value(16, size, r"= sub\(%index") for size in (15, 17)}
ERF = {"erf for tanh": text("= gelu", ', approximate="tanh"', "")}
QK_NORM_OFF = {
    "no norm of q": module_becomes("q_norm", None),
    "no norm of k": module_becomes("k_norm", None),
}
RMS_EPS = {"eps 1e-3": value(1e-6, 1e-3, r"= add\(%mean")}
LAYER_NORM_EPS = {"eps 1e-3": text("= layer_norm", "eps=1e-05", "eps=0.001")}
LLAMA = {
    **SCALE,
    **WRONG_KV_HEAD,
    **SELF_HIDDEN,
    **THETA,
    **ROTATION,
    **LAYOUT,
    **RMS_EPS,
    "gelu for silu": text("= silu", "silu(", "gelu("),
    "1 + weight in norms": weights(r"norm\.weight", _one_more),
}
GEMMA = {
    **SCALE,
    **WRONG_KV_HEAD,
    **THETA,
    **LAYOUT,
    **WINDOW,
    **ERF,
    **RMS_EPS,
    "weight for 1 + weight": value(1.0, 0.0, r"= add\(@\S*norm\.weight"),
    "embedding not scaled": value(8.0, 1.0, r"= mul\(%embedding"),
    "window in the other layers": exchange(r"= add\(.*%where", "%where", "%where_1"),
}

MISTAKES: dict[str, dict[str, Edit]] = {
    "llama": {
        **LLAMA,
        "positions halved": weights("inv_freq", lambda f: f / 2),
        "feed-forward beside attention": beside("post_attention_layernorm", 0),
    },
    "qwen2": {
        **LLAMA,
        "no bias of q": weights(r"q_proj\.bias", _zero),
        "no bias of k": weights(r"k_proj\.bias", _zero),
        "no bias of v": weights(r"v_proj\.bias", _zero),
    },
    "qwen3": {**LLAMA, **QK_NORM_OFF},
    "mistral": {**LLAMA, **WINDOW},
    "gemma2": {
        **GEMMA,
        "no cap of scores": bypassed(r"= tanh\(.*self_attn"),
        "scores capped at 45": value(50.0, 45.0, r"self_attn"),
        "no cap of logits": bypassed(r"= tanh\(%\S+\) :"),
        "logits capped at 27": value(30.0, 27.0, r"%(?:linear|tanh)\S+, @\S+\) :"),
    },
    "gemma3": {
        **GEMMA,
        **QK_NORM_OFF,
        "local theta everywhere": weights("full_attention_inv_freq", _theta(1e4, old=1e6)),
    },
    "phi": {
        **SCALE,
        **SELF_HIDDEN,
        **THETA,
        **ROTATION,
        **LAYER_NORM_EPS,
        "erf for tanh": module_becomes("activation_fn", "gelu"),
        "half as much rotated": weights("inv_freq", lambda f: f * torch.tensor([1.0, 1.0, 0.0, 0.0])),
        "values of the next head": weights(r"v_proj\.(?:weight|bias)", _next_head),
        "no bias of k": weights(r"k_proj\.bias", _zero),
        "no bias of the head": weights(r"lm_head\.bias", _zero),
        "feed-forward behind attention": behind("input_layernorm", "self_attn.dense", "mlp.fc1"),
    },
    "phi3": {
        **SCALE,
        **WRONG_KV_HEAD,
        **SELF_HIDDEN,
        **THETA,
        **ROTATION,
        "eps 1e-3": value(1e-5, 1e-3, r"= add\(%mean"),
        "gate and up exchanged": exchange("= slice.*mlp", "[0, 112", "[112, 224"),
        "keys and values exchanged": exchange("= slice.*self_attn", "[64, 96", "[96, 128"),
        "gelu for silu": text("= silu", "silu(", "gelu("),
    },
    "gpt2": {
        **SCALE,
        **SELF_HIDDEN,
        **LAYER_NORM_EPS,
        "erf for tanh": module_becomes("mlp.act", "gelu"),
        "positions from 1": value(0, 1, r"%add = add\(%arange_1,"),
        "keys and values exchanged": weights(r"c_attn\.(?:weight|bias)", _thirds(lambda q, k, v: (q, v, k), -1)),
        "no bias of q": weights(r"c_attn\.bias", _thirds(lambda q, k, v: (_zero(q), k, v))),
        "no bias of v": weights(r"c_attn\.bias", _thirds(lambda q, k, v: (q, k, _zero(v)))),
        "feed-forward beside attention": beside("ln_2", 1),
    },
    "gpt_neox": {
        **SCALE,
        **SELF_HIDDEN,
        **THETA,
        **ROTATION,
        **LAYER_NORM_EPS,
        "tanh for erf": text("= gelu", "} :", ', approximate="tanh"} :'),
        "half as much rotated": weights("inv_freq", lambda f: f * torch.tensor([1.0, 1.0, 0.0, 0.0])),
        "q, k, v not head by head": weights(r"query_key_value\.(?:weight|bias)", _all_queries_first),
        "no bias in attention": weights(r"(?:query_key_value|attention\.dense)\.bias", _zero),
        "feed-forward behind attention": behind("post_attention_layernorm", "attention.dense", "mlp.dense_h_to_4h"),
    },
    "opt": {
        **SCALE,
        **SELF_HIDDEN,
        **LAYER_NORM_EPS,
        "positions one later": value(2, 3, r"= add\(%to,"),
        "positions without offset": value(2, 0, r"= add\(%to,"),
        "gelu for relu": text("= relu", "relu(", "gelu("),
        "values of the next head": weights(r"v_proj\.(?:weight|bias)", _next_head),
        "no bias of q": weights(r"q_proj\.bias", _zero),
        "no bias of v": weights(r"v_proj\.bias", _zero),
    },
    "falcon": {
        "scale x 1.1": value(4.0, 4.0 / 1.1, ATTENTION),
        **SELF_HIDDEN,
        **THETA,
        **ROTATION,
        **LAYER_NORM_EPS,
        "tanh for erf": text("= gelu", "} :", ', approximate="tanh"} :'),
        "keys and values exchanged": exchange(r"= take\(.*self_attention", "lifted_tensor_0", "lifted_tensor_1"),
        "interleaved q and k": weights(
            r"query_key_value\.weight",
            lambda w: torch.cat([_pairs(w[: 5 * HEAD]).reshape(5 * HEAD, -1), w[5 * HEAD :]]),
        ),
        "feed-forward behind attention": behind("input_layernorm", "self_attention.dense", "mlp.dense_h_to_4h"),
    },
    "starcoder2": {
        **SCALE,
        **WRONG_KV_HEAD,
        **WINDOW,
        **THETA,
        **ROTATION,
        **LAYOUT,
        **ERF,
        **LAYER_NORM_EPS,
        "no bias of k": weights(r"k_proj\.bias", _zero),
        "feed-forward beside attention": beside("post_attention_layernorm", 0),
    },
    "olmo2": {
        **SCALE,
        **WRONG_KV_HEAD,
        **SELF_HIDDEN,
        **THETA,
        **ROTATION,
        **LAYOUT,
        **QK_NORM_OFF,
        "eps 1e-3": value(1e-5, 1e-3, r"= add\(%mean"),
        "no norm behind attention": module_becomes("post_attention_layernorm", None),
        "no norm behind feed-forward": module_becomes("post_feedforward_layernorm", None),
        "gelu for silu": text("= silu", "silu(", "gelu("),
    },
}

# --- Changes that leave the mathematics as it is

# Rotary scores depend on differences of positions.
LATER = {"positions from 1": value(0, 1, r"%add = add\(%arange_1,")}
# A kv head and its query heads may stand anywhere, if the columns of the output projection follow.
_GROUPS = {
    "groups of heads exchanged": both(
        weights(r"[qkv]_proj\.(?:weight|bias)", lambda rows: rows.roll(rows.shape[0] // 2, 0)),
        weights(r"o_proj\.weight", lambda rows: rows.roll(rows.shape[1] // 2, 1)),
    )
}
# A sum of key and bias adds one number to all scores of a query, which softmax takes away; not so once keys rotate.
_KEY_BIAS = "no bias of k"
# Queries and keys meet in a product over the head only: any common order of its elements is as good.
_COMMON_ORDER = "q and k interleaved"

HARMLESS: dict[str, dict[str, Edit]] = {
    "llama": {**LATER, **_GROUPS},
    "qwen2": {**LATER, **_GROUPS},
    "qwen3": {**LATER, **_GROUPS},
    "mistral": {**LATER, **_GROUPS},
    "gemma2": {**LATER, **_GROUPS},
    "gemma3": {**LATER, **_GROUPS},
    "phi": LATER,
    "phi3": LATER,
    "gpt2": {
        _KEY_BIAS: weights(r"c_attn\.bias", _thirds(lambda q, k, v: (q, _zero(k), v))),
        _COMMON_ORDER: weights(
            r"c_attn\.(?:weight|bias)",
            _thirds(lambda q, k, v: (_pair_columns(q), _pair_columns(k), v), -1),
        ),
    },
    "gpt_neox": LATER,
    "opt": {
        _KEY_BIAS: weights(r"k_proj\.bias", _zero),
        _COMMON_ORDER: weights(r"[qk]_proj\.(?:weight|bias)", _pairs),
    },
    "falcon": {
        **LATER,
        # One kv head serves all: query heads may change places with the columns that read them.
        "query heads in another order": both(
            weights(r"query_key_value\.weight", lambda w: torch.cat([w[:64].roll(HEAD, 0), w[64:]])),
            weights(r"self_attention\.dense\.weight", lambda w: w.roll(HEAD, 1)),
        ),
    },
    "starcoder2": {**LATER, **_GROUPS},
    "olmo2": {
        **LATER,
        "groups of heads exchanged": both(
            _GROUPS["groups of heads exchanged"],
            weights(r"[qk]_norm\.weight", lambda weight: weight.roll(len(weight) // 2)),
        ),
    },
}

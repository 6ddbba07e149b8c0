# SPDX-License-Identifier: Apache-2.0
"""The items of a `GraphOp`: descriptions, each made by a constructor whose first argument is the item's name.

An option that there is not, that is missing or of another type raises `atb.InvalidArgumentError` with the constructor's
signature. Values that do not fit each other or the inputs are refused when the block is made or first called.
What items compute is in the core (`src/blocks/items`); `docs/graphop.md` has them in a table.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from atb.errors import InvalidArgumentError

from atb_torch.item_calls import constructor, fail


@dataclass(eq=False)
class Item:
    """An item: its kind in the core, its name, its options, and the lists of items that it holds."""

    kind: str
    name: str | None = None
    attrs: dict[str, Any] = field(default_factory=dict)
    branches: tuple[tuple[Any, ...], ...] = ()
    function: Callable[..., Any] | None = None  # of a Custom item in Python

    def __post_init__(self) -> None:
        if self.name is not None and (not isinstance(self.name, str) or not self.name):
            raise InvalidArgumentError(f"[{self.kind}] name={self.name!r}; expected text, or None for no name")
        self.attrs = {key: value for key, value in self.attrs.items() if value is not None}

    def __repr__(self) -> str:
        options = [f"{key}={value!r}" for key, value in self.attrs.items()]
        inside = ["[" + ", ".join(map(_shown, branch)) + "]" for branch in self.branches]
        if self.kind == "flash_attention":
            inside = [f"rope={branch[0]!r}" for branch in self.branches]
        return f"{self.kind}({', '.join([*([repr(self.name)] if self.name else []), *inside, *options])})"


def _shown(item: Any) -> str:
    """An item inside of another, in its line; a block, which PyTorch shows in many lines, by its name."""
    return repr(item) if isinstance(item, Item) else f"{type(item).__name__}({item.name or ''})"


@constructor("layer_norm")
def LayerNorm(name: str | None = None, *, eps: float = 1e-5, bias: bool = True) -> Item:
    """`torch.nn.LayerNorm` over the last axis: floats [.., features] in and out.

    eps: added to the variance. bias: False leaves it out. Parameters: weight and bias [features].
    """
    return Item("layer_norm", name, {"eps": eps, "bias": bias})


@constructor("rms_norm")
def RMSNorm(name: str | None = None, *, eps: float = 1e-6) -> Item:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis: floats [.., features] in and out.

    Zhang and Sennrich 2019, "Root Mean Square Layer Normalization". Parameter: weight [features].
    """
    return Item("rms_norm", name, {"eps": eps})


@constructor("linear")
def Linear(name: str | None = None, *, out_features: int, bias: bool = True) -> Item:
    """`torch.nn.Linear`: floats [.., features] to [.., out_features], x @ weight.T + bias.

    Right before FlashAttention it is the projection of queries, keys and values: num_heads + 2 * num_kv_heads times
    head_dim features. Parameters: weight [out_features, features], bias [out_features].
    """
    return Item("linear", name, {"out_features": out_features, "bias": bias})


@constructor("flash_attention")
def FlashAttention(
    name: str | None = None,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    causal: bool = False,
    kv_cache: bool = False,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
    rope: Item | Mapping[str, Any] | float | bool | None = None,
) -> Item:
    """softmax(q k^T * scale + mask) v by heads: [batch, tokens, num_heads * head_dim] out.

    In comes what the Linear before it gives, [batch, tokens, (num_heads + 2 * num_kv_heads) * head_dim], or three
    values of a Branch.
    num_kv_heads: of keys and values; num_heads by default.
    head_dim: what the features make it, by default.
    causal: a query sees no later key; with a window only so many keys up to its own.
    kv_cache: keys and values of earlier calls are seen; the block then takes and returns a `KVCache`.
    scale: of the scores, 1 / sqrt(head_dim) by default.
    softcap: softcap * tanh(scores / softcap).
    rope: rotary embedding of queries and keys: True (theta 10000), a theta, a mapping of `RotaryEmbedding`'s options
        (theta, dim, interleaved, type, factor, low_freq_factor, high_freq_factor, original_context), or one.
    The block's call refuses, with `atb.InvalidArgumentError`, features that the heads do not divide, and a window
    without causal=True.
    """
    rotary = _rotary(rope)
    attrs: dict[str, Any] = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
    attrs |= {"causal": causal, "kv_cache": kv_cache, "scale": scale, "window": window, "softcap": softcap}
    return Item("flash_attention", name, attrs, ((rotary,),) if rotary is not None else ())


# Of RotaryEmbedding, but its name and the head_dim that the attention has.
_LLAMA3_KEYS = ("factor", "low_freq_factor", "high_freq_factor", "original_context")
_ROPE_KEYS = ("theta", "dim", "interleaved", "type", *_LLAMA3_KEYS)


def _rotary(rope: Item | Mapping[str, Any] | float | bool | None) -> Item | None:
    if rope is None or rope is False:
        return None
    if rope is True:
        return RotaryEmbedding()
    if isinstance(rope, Mapping):
        unknown = [key for key in rope if key not in _ROPE_KEYS]
        if unknown:
            raise InvalidArgumentError(
                f"[flash_attention] rope has no {', '.join(map(repr, unknown))}; its keys are {', '.join(_ROPE_KEYS)}"
            )
        return RotaryEmbedding(**rope)
    if isinstance(rope, numbers.Real):
        return RotaryEmbedding(theta=float(rope))
    if isinstance(rope, Item) and rope.kind == "rotary_embedding":
        return rope
    raise InvalidArgumentError(
        f"[flash_attention] rope={rope!r}; expected True, a theta, RotaryEmbedding(...), or a mapping with any of the "
        f"keys {', '.join(_ROPE_KEYS)}"
    )


@constructor("rotary_embedding")
def RotaryEmbedding(
    name: str | None = None,
    *,
    theta: float = 10000.0,
    dim: int | None = None,
    interleaved: bool = False,
    type: str = "default",
    factor: float | None = None,
    low_freq_factor: float | None = None,
    high_freq_factor: float | None = None,
    original_context: int | None = None,
    head_dim: int | None = None,
) -> Item:
    """Rotary positions (Su et al. 2021): before FlashAttention of its queries and keys, elsewhere of each head of x.

    theta: base of the frequencies theta^(-2i / dim). dim: leading features of a head that rotate, even; all by default.
    interleaved: pairs are neighbours (2i, 2i + 1), not halves (i, i + dim / 2).
    type: "default", or "llama3" with factor, low_freq_factor, high_freq_factor and original_context (Llama 3.1).
    head_dim: features of a head where no attention follows; x is then floats [batch, tokens, heads * head_dim].
    """
    attrs: dict[str, Any] = {"theta": theta, "dim": dim, "interleaved": interleaved, "type": type, "factor": factor}
    attrs |= {"low_freq_factor": low_freq_factor, "high_freq_factor": high_freq_factor}
    attrs |= {"original_context": original_context, "head_dim": head_dim}
    return Item("rotary_embedding", name, attrs)


@constructor("silu")
def SiLU(name: str | None = None) -> Item:
    """x * sigmoid(x): floats [.., features] in and out."""
    return Item("silu", name)


@constructor("gelu")
def GELU(name: str | None = None, *, approximate: str = "none") -> Item:
    """`torch.nn.GELU`: floats [.., features] in and out. approximate: "none" or "tanh"."""
    return Item("gelu", name, {"approximate": approximate})


@constructor("relu")
def ReLU(name: str | None = None) -> Item:
    """max(x, 0): floats [.., features] in and out."""
    return Item("relu", name)


@constructor("softmax")
def Softmax(name: str | None = None) -> Item:
    """Softmax over the last axis: floats [.., features] in and out."""
    return Item("softmax", name)


@constructor("dropout")
def Dropout(name: str | float | None = None, *, p: float = 0.5) -> Item:
    """Nothing in eval mode; a call of a block in training mode with p > 0 raises `atb.UnsupportedError`.

    p: share of zeros in training, 0 to 1; a number in the place of the name is p, as in `torch.nn.Dropout(0.1)`.
    """
    if isinstance(name, float):
        if p != 0.5:
            fail("dropout", Dropout, f"p is given twice, as {name} and {p}")
        p = name
    if not 0 <= p <= 1:
        fail("dropout", Dropout, f"p={p}; expected 0 to 1")
    return Item("dropout", name if isinstance(name, str) else None, {"p": p})


@constructor("gated_mlp")
def GatedMLP(
    name: str | None = None,
    *,
    hidden_features: int,
    out_features: int | None = None,
    activation: str = "silu",
    bias: bool = False,
) -> Item:
    """down_proj(activation(gate_proj(x)) * up_proj(x)), as in llama: floats [.., features] to [.., out_features].

    out_features: features by default. activation: silu, gelu, gelu_tanh or relu. Parameters: gate_proj.weight and
    up_proj.weight [hidden_features, features], down_proj.weight [out_features, hidden_features]; with bias=True biases.
    """
    attrs = {"hidden_features": hidden_features, "out_features": out_features, "activation": activation, "bias": bias}
    return Item("gated_mlp", name, attrs)


@constructor("embedding")
def Embedding(name: str | None = None, *, num_embeddings: int, embedding_dim: int) -> Item:
    """`torch.nn.Embedding`: token ids [batch, tokens], int32 or int64, to [batch, tokens, embedding_dim].

    Parameter: weight [num_embeddings, embedding_dim]. An id outside of it raises `atb.InvalidArgumentError`.
    """
    return Item("embedding", name, {"num_embeddings": num_embeddings, "embedding_dim": embedding_dim})


@constructor("add")
def Add(name: str | None = None, source: str | None = None) -> Item:
    """The sum of what a Branch or Split gives, and of the result that `source` names: floats of one shape."""
    return Item("add", name, {"source": source})


@constructor("mul")
def Mul(name: str | None = None, source: str | None = None) -> Item:
    """The product of what a Branch or Split gives, and of the result that `source` names: floats of one shape."""
    return Item("mul", name, {"source": source})


@constructor("residual_add")
def ResidualAdd(name: str | None = None, source: str | None = None) -> Item:
    """source + x, floats of one shape.

    source: "input", which is the call's residual, else its first argument; or the name of an earlier item.
    Without a source the first one of a list adds "input", each further one the result of the one before.
    """
    return Item("residual_add", name, {"source": source})


@constructor("concat")
def Concat(name: str | None = None, *, axis: int = -1) -> Item:
    """What a Branch or Split gives, side by side along an axis; the other axes must be equal."""
    return Item("concat", name, {"axis": axis})


@constructor("split")
def Split(name: str | None = None, *, sections: int | None = None, sizes: Sequence[int] | None = None) -> Item:
    """The features as several values for the next item: `sections` equal ones, or ones of these sizes.

    [.., features] to several [.., part], which add up to the features.
    """
    return Item("split", name, {"sections": sections, "sizes": None if sizes is None else list(sizes)})


@constructor("branch")
def Branch(*lists: Sequence[Any], name: str | None = None) -> Item:
    """Lists of items that all read the stream; the next item takes as many values as there are lists, two or more.

    An empty list passes the stream on as it is.
    """
    for number, items in enumerate(lists):
        if not isinstance(items, (list, tuple)):
            fail("branch", Branch, f"list {number} is no list of items, but {items!r}")
    return Item("branch", name, {}, tuple(tuple(items) for items in lists))


@constructor("custom")
def Custom(
    name: str | Callable[..., Any] | None = None,
    target: Callable[..., Any] | str | None = None,
    *,
    out_features: int | Sequence[int] | None = None,
    types: str | None = None,
    **attrs: Any,
) -> Item:
    """An own operator: a Python callable of tensors, or the name of an operator or of a loaded library's kernel.

    out_features: features of its result, or of each of several, where they are not those of its first input.
    types: its results in full, as "f32[B, T, 8]". attrs: attributes of an operator of ATB.
    A Python callable runs between two launches and must return new tensors of the dtype of its first input; what it
    raises reaches the caller of the block.
    """
    if target is None and callable(name):
        name, target = None, name
    if not callable(target) and not isinstance(target, str):
        fail("custom", Custom, f"target={target!r}; expected a callable, or the name of an operator or kernel")
    widths = [out_features] if isinstance(out_features, int) else out_features
    options = {"types": types, "out_features": None if widths is None else list(widths)} | attrs
    if isinstance(target, str):
        return Item("custom", name, {"target": target} | options)  # type: ignore[arg-type]
    label = getattr(target, "__name__", type(target).__name__)
    return Item("custom", name, {"target": label} | options, function=target)  # type: ignore[arg-type]

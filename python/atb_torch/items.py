# SPDX-License-Identifier: Apache-2.0
"""The items of a `GraphOp`: descriptions, each made by a constructor whose first argument is the item's name.

What they compute is in the core (`src/blocks/items`); `docs/graphop.md` has them in a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from atb.errors import InvalidArgumentError


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
            raise InvalidArgumentError(f"[{self.kind}] the first argument is the item's name, text; got {self.name!r}")
        self.attrs = {key: value for key, value in self.attrs.items() if value is not None}

    def __repr__(self) -> str:
        options = [f"{key}={value!r}" for key, value in self.attrs.items()]
        return f"{self.kind}({', '.join([*([repr(self.name)] if self.name else []), *options])})"


def LayerNorm(name: str | None = None, *, eps: float = 1e-5, bias: bool = True) -> Item:
    """`torch.nn.LayerNorm` over the last axis."""
    return Item("layer_norm", name, {"eps": eps, "bias": bias})


def RMSNorm(name: str | None = None, *, eps: float = 1e-6) -> Item:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
    return Item("rms_norm", name, {"eps": eps})


def Linear(name: str | None = None, *, out_features: int, bias: bool = True) -> Item:
    """`torch.nn.Linear`; right before FlashAttention it is the projection of queries, keys and values."""
    return Item("linear", name, {"out_features": out_features, "bias": bias})


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
    """Attention over the slices of the projection before it: num_heads, num_kv_heads, num_kv_heads times head_dim.

    causal: a query sees no later key; with a window only so many keys up to its own.
    kv_cache: keys and values of earlier calls are seen; the block then takes and returns a `KVCache`.
    scale: of the scores, 1 / sqrt(head_dim) by default. softcap: softcap * tanh(scores / softcap).
    rope: rotary embedding of queries and keys: True, a theta, a mapping of `RotaryEmbedding`'s options, or one.
    """
    rotary = _rotary(rope)
    attrs: dict[str, Any] = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
    attrs |= {"causal": causal, "kv_cache": kv_cache, "scale": scale, "window": window, "softcap": softcap}
    return Item("flash_attention", name, attrs, ((rotary,),) if rotary is not None else ())


def _rotary(rope: Item | Mapping[str, Any] | float | bool | None) -> Item | None:
    if rope is None or rope is False:
        return None
    if rope is True:
        return RotaryEmbedding()
    if isinstance(rope, Mapping):
        return RotaryEmbedding(**rope)
    if isinstance(rope, (int, float)):
        return RotaryEmbedding(theta=float(rope))
    if isinstance(rope, Item) and rope.kind == "rotary_embedding":
        return rope
    raise InvalidArgumentError(f"[flash_attention] rope={rope!r}: use True, a theta, a mapping or RotaryEmbedding(...)")


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
    """Rotary positions: before FlashAttention of its queries and keys, elsewhere of each head of `head_dim` features.

    dim: leading features of a head that rotate, all by default. interleaved: pairs are neighbours, not halves.
    type: "default", or "llama3" with the factors of Llama 3.1.
    """
    attrs: dict[str, Any] = {"theta": theta, "dim": dim, "interleaved": interleaved, "type": type, "factor": factor}
    attrs |= {"low_freq_factor": low_freq_factor, "high_freq_factor": high_freq_factor}
    attrs |= {"original_context": original_context, "head_dim": head_dim}
    return Item("rotary_embedding", name, attrs)


def SiLU(name: str | None = None) -> Item:
    """x * sigmoid(x)."""
    return Item("silu", name)


def GELU(name: str | None = None, *, approximate: str = "none") -> Item:
    """`torch.nn.GELU`; approximate: "none" or "tanh"."""
    return Item("gelu", name, {"approximate": approximate})


def ReLU(name: str | None = None) -> Item:
    """max(x, 0)."""
    return Item("relu", name)


def Softmax(name: str | None = None) -> Item:
    """Softmax over the last axis."""
    return Item("softmax", name)


def Dropout(name: str | None = None, *, p: float = 0.5) -> Item:
    """Nothing in eval mode; a call of a block in training mode with p > 0 is refused."""
    return Item("dropout", name, {"p": p})


def GatedMLP(
    name: str | None = None,
    *,
    hidden_features: int,
    out_features: int | None = None,
    activation: str = "silu",
    bias: bool = False,
) -> Item:
    """down_proj(activation(gate_proj(x)) * up_proj(x)), as in llama; activation: silu, gelu, gelu_tanh or relu."""
    attrs = {"hidden_features": hidden_features, "out_features": out_features, "activation": activation, "bias": bias}
    return Item("gated_mlp", name, attrs)


def Embedding(name: str | None = None, *, num_embeddings: int, embedding_dim: int) -> Item:
    """`torch.nn.Embedding`: rows of its weight by token id."""
    return Item("embedding", name, {"num_embeddings": num_embeddings, "embedding_dim": embedding_dim})


def Add(name: str | None = None, source: str | None = None) -> Item:
    """The sum of what a Branch or Split gives, and of the result that `source` names."""
    return Item("add", name, {"source": source})


def Mul(name: str | None = None, source: str | None = None) -> Item:
    """The product of what a Branch or Split gives, and of the result that `source` names."""
    return Item("mul", name, {"source": source})


def ResidualAdd(name: str | None = None, source: str | None = None) -> Item:
    """Adds `source`: "input" is the call's residual, else its first argument; or the name of an earlier item.

    Without a source the first one of a list adds "input", each further one the result of the one before.
    """
    return Item("residual_add", name, {"source": source})


def Concat(name: str | None = None, *, axis: int = -1) -> Item:
    """What a Branch or Split gives, side by side along an axis."""
    return Item("concat", name, {"axis": axis})


def Split(name: str | None = None, *, sections: int | None = None, sizes: Sequence[int] | None = None) -> Item:
    """The features as several values for the next item: `sections` equal ones, or ones of these sizes."""
    return Item("split", name, {"sections": sections, "sizes": None if sizes is None else list(sizes)})


def Branch(*lists: Sequence[Any], name: str | None = None) -> Item:
    """Lists of items that all read the stream; the next item takes as many values as there are lists."""
    return Item("branch", name, {}, tuple(tuple(items) for items in lists))


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
    A Python callable runs between two launches and must return new tensors of the dtype of its first input.
    """
    if target is None and callable(name):
        name, target = None, name
    if not callable(target) and not isinstance(target, str):
        raise InvalidArgumentError(f"[custom] target={target!r}: give a callable, or the name of an operator or kernel")
    widths = [out_features] if isinstance(out_features, int) else out_features
    options = {"types": types, "out_features": None if widths is None else list(widths)} | attrs
    if isinstance(target, str):
        return Item("custom", name, {"target": target} | options)  # type: ignore[arg-type]
    label = getattr(target, "__name__", type(target).__name__)
    return Item("custom", name, {"target": label} | options, function=target)  # type: ignore[arg-type]

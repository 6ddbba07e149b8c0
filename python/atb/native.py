# SPDX-License-Identifier: Apache-2.0
"""The four steps of attention, each an operator that can be called alone: load, attend, merge statistics and outputs.

Every function takes arrays of numpy, torch or anything with `__dlpack__` or the buffer protocol, of any strides, in
f32, f16, bf16 or f64. All is computed in f32, and results are `atb.Tensor` of f32. A call runs a graph of one to a few
nodes, which is compiled once for a combination of options, heads and head size, as any other graph is.

    first = native.partial_attention(q, k[:, :4096], v[:, :4096])
    second = native.partial_attention(q, k[:, 4096:], v[:, 4096:])
    output = native.finish(native.merge(first, second))  # == native.flash_attention(q, k, v)

What the steps compute and when results are equal to the bit: docs/native_steps.md.
"""

from __future__ import annotations

import array
import functools
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from atb import _core
from atb._core import Tensor
from atb.errors import InvalidArgumentError
from atb.generation import as_int
from atb.graph import CompiledGraph, Graph

__all__ = [
    "Blocks",
    "Partial",
    "block_attention",
    "finish",
    "flash_attention",
    "merge",
    "online_softmax",
    "output_merge",
    "partial_attention",
    "qkv_load",
]

Extents = tuple[int | str, ...]
"""Of an input as a graph knows it: numbers, or names of symbols where any extent will do."""

_PANEL = 16  # keys side by side
_LARGEST = 2**24  # extent of an axis that a compiled graph leaves open
_GRAPHS = 32  # compiled graphs that are kept
_MERGED_AT_ONCE = 8  # partial results of one graph
_FLOATS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}
_INTEGERS = {"int32": "i32", "int64": "i64", "i": "i32"}
_DTYPES = {**_FLOATS, **_INTEGERS, **{name: name for name in (*_FLOATS.values(), "i32", "i64")}}


class Blocks(NamedTuple):
    """What `qkv_load` gives: keys 16 side by side, as attention reads them. May be kept for many calls."""

    q: Any
    """Queries [B, T, H, D]."""
    k: Any
    """Keys [B or 1, KV, ceil(S / 16), D, 16]."""
    v: Any
    """Values [B or 1, KV, S, D]."""


class Partial(NamedTuple):
    """Attention over some of the keys, not yet divided by the sum of its weights."""

    output: Any
    """Sum over the visible keys of e^(score - max) * value: [B, T, H, D]; zeros where no key is visible."""
    max: Any
    """Largest score: [B, T, H]; -inf where no key is visible."""
    sum: Any
    """Sum of e^(score - max): [B, T, H]."""


class _Form(NamedTuple):
    """What a compiled graph is made for: dtype of an input, and its extents; text where any extent will do."""

    dtype: str
    shape: Extents


def qkv_load(
    q: Any,
    k: Any,
    v: Any,
    q_weight: Any = None,
    q_bias: Any = None,
    k_weight: Any = None,
    k_bias: Any = None,
    *,
    norm: str = "none",
    eps: float = 0.0,
) -> Blocks:
    """Lays queries [B, T, H, D], keys and values [B or 1, S, KV, D] out in the blocks that `block_attention` reads.

    norm: "rms" or "layer" sends each head of q and of k through that norm over D on its way. Weights and biases: [D].
    Raises `atb.InvalidArgumentError` where shapes do not fit one another.
    """
    sizes = _sizes(q, k)
    inputs = {"q": (q, sizes.q), "k": (k, sizes.k), "v": (v, sizes.k)}
    for name, vector in {"q_weight": q_weight, "q_bias": q_bias, "k_weight": k_weight, "k_bias": k_bias}.items():
        inputs[name] = (vector, sizes.q[3:])
    return Blocks(*_run("qkv_load", inputs, norm=norm, eps=float(eps)))


def block_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    first_query: Any = None,
    running: Partial | None = None,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
    causal: bool = False,
    window: int = 0,
    split: int = 0,
) -> Partial:
    """Partial attention over loaded blocks, with the partial results on a first axis: output [P, B, T, H, D].

    q, k, v: of `qkv_load`, `block_attention(*blocks)`. Keys of batch 1 serve all queries and are read once for them.
    mask: floats added to the scores; broadcasts to [B, H, T, S].
    first_query: where the first query stands, counted from the first key given: a number, or one a batch (i32). What
        causal and window go by; S - T where absent, so that the last query is level with the last key.
    running: results of earlier keys [B, T, H, ...], which this one goes on from.
    scale: of the scores; D ** -0.5 where absent. softcap, causal, window: as in `flash_attention`.
    split: keys of a partial result, a multiple of 128; 0 puts all keys in one.
    Raises `atb.InvalidArgumentError` where shapes or options do not fit.
    """
    heads, head_dim = _shape(q, "q", 4)[2:]
    k_shape, v_shape = _shape(k, "k", 5), _shape(v, "v", 4)
    batch = 1 if k_shape[0] == 1 else "B"
    inputs = {
        "q": (q, ("B", "T", heads, head_dim)),
        "k": (k, (batch, k_shape[1], f"floordiv(S + {_PANEL - 1}, {_PANEL})", k_shape[3], k_shape[4])),
        "v": (v, (batch, v_shape[1], "S", v_shape[3])),
        **_other_inputs(mask, first_query, running, heads, head_dim),
    }
    attrs = _attrs(head_dim, scale, softcap, causal, window)
    return Partial(*_run("block_attention", inputs, **attrs, split=as_int(split, "split")))


def online_softmax(max: Any, sum: Any) -> tuple[Tensor, Tensor]:
    """Running maximum and sum over the partial results [P, ...] of axis 0, folded in ascending order: two of [...]."""
    largest, total = _run("online_softmax", _statistics(max, sum))
    return largest, total


def output_merge(output: Any, max: Any, sum: Any, *, finish: bool = True) -> Tensor:
    """Outputs [P, ..., D] of the partial results of axis 0 as one [..., D], folded in ascending order.

    finish: divides by the sum of the weights. Without, the result is a partial one again, whose max and sum are those
        of `online_softmax`.
    """
    shape = _shape(output, "output")
    if not shape:
        raise InvalidArgumentError("[native] output has no axes; partial results [P, ..., D] are needed")
    inputs = {"output": (output, (*_open(shape[:-1]), shape[-1])), **_statistics(max, sum)}
    return _run("output_merge", inputs, finish=bool(finish))[0]


def partial_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    first_query: Any = None,
    running: Partial | None = None,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
    causal: bool = False,
    window: int = 0,
) -> Partial:
    """Attention of queries [B, T, H, D] over some of their keys, k and v [B or 1, S, KV, D]: one partial result.

    Loads and attends in one call; arguments are those of `block_attention`. For keys from position n of a sequence on,
    whose first query stands at position p, first_query is p - n.
    """
    sizes = _sizes(q, k)
    heads, head_dim = _shape(q, "q", 4)[2:]
    inputs = {
        "q": (q, sizes.q),
        "k": (k, sizes.k),
        "v": (v, sizes.k),
        **_other_inputs(mask, first_query, running, heads, head_dim),
    }
    return Partial(*_run("partial_attention", inputs, **_attrs(head_dim, scale, softcap, causal, window)))


def merge(*partials: Partial) -> Partial:
    """Partial results over different keys as one over all of them, folded from the left in the order given."""
    if not partials:
        raise InvalidArgumentError("[native] merge of no partial results; at least one is needed")
    merged, rest = _partial(partials[0], "a partial result"), partials[1:]
    while rest:
        merged = _merge([merged, *rest[: _MERGED_AT_ONCE - 1]])
        rest = rest[_MERGED_AT_ONCE - 1 :]
    return merged


def finish(partial: Partial) -> Tensor:
    """The output of attention [B, T, H, D]: output / sum; zeros where no key was visible."""
    return _run("finish", _partial_inputs([partial]))[0]


def flash_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
    causal: bool = False,
    window: int = 0,
) -> Tensor:
    """The whole in one operator: softmax(q k^T * scale + mask) v for q [B, T, H, D], k and v [B, S, KV, D].

    softcap: scaled scores s become softcap * tanh(s / softcap) before the mask; 0 for none.
    causal: hides the keys beyond a query, the last of which is level with the last key.
    window: number of visible keys up to the query's own; 0 for all.
    """
    sizes = _sizes(q, k)
    heads, head_dim = _shape(q, "q", 4)[2:]
    inputs = {"q": (q, sizes.q), "k": (k, ("B", *sizes.k[1:])), "v": (v, ("B", *sizes.k[1:]))}
    inputs["mask"] = (mask, _mask_shape(mask, heads))
    return _run("flash_attention", inputs, **_attrs(head_dim, scale, softcap, causal, window))[0]


class _Sizes(NamedTuple):
    q: Extents
    k: Extents


def _sizes(q: Any, k: Any) -> _Sizes:
    q_shape, k_shape = _shape(q, "q", 4), _shape(k, "k", 4)
    batch = 1 if k_shape[0] == 1 else "B"
    return _Sizes(("B", "T", *q_shape[2:]), (batch, "S", *k_shape[2:]))


def _attrs(head_dim: int, scale: float | None, softcap: float, causal: bool, window: int) -> dict[str, Any]:
    factor = float(scale) if scale is not None else max(head_dim, 1) ** -0.5
    return {"scale": factor, "softcap": float(softcap), "causal": bool(causal), "window": as_int(window, "window")}


def _other_inputs(
    mask: Any, first_query: Any, running: Partial | None, heads: int | str, head_dim: int | str
) -> dict[str, tuple[Any, Extents]]:
    if first_query is not None and not hasattr(first_query, "shape"):
        numbers = first_query if isinstance(first_query, Sequence) else [first_query]
        first_query = array.array("i", [_position(number) for number in numbers])
    count = _shape(first_query, "first_query", 1)[0] if first_query is not None else 1
    output, largest, total = _partial(running, "running") if running is not None else (None, None, None)
    return {
        "mask": (mask, _mask_shape(mask, heads)),
        "first_query": (first_query, (1 if count == 1 else "B",)),
        "output": (output, ("B", "T", heads, head_dim)),
        "max": (largest, ("B", "T", heads)),
        "sum": (total, ("B", "T", heads)),
    }


def _position(number: Any) -> int:
    position = as_int(number, "first_query")
    if not -(2**31) <= position < 2**31:
        raise InvalidArgumentError(f"[native] first_query {position} is no position; it must fit 32 bits")
    return position


def _mask_shape(mask: Any, heads: int | str) -> Extents:
    if mask is None:
        return ()
    shape = _shape(mask, "mask")
    if not 1 <= len(shape) <= 4:
        raise InvalidArgumentError(f"[native] mask has {len(shape)} axes; it must broadcast to [B, H, T, S]")
    names = ("B", heads, "T", "S")[4 - len(shape) :]
    last = len(shape) - 1
    return tuple(1 if size == 1 and axis < last else names[axis] for axis, size in enumerate(shape))


def _statistics(largest: Any, total: Any) -> dict[str, tuple[Any, Extents]]:
    return {"max": (largest, _open(_shape(largest, "max"))), "sum": (total, _open(_shape(total, "sum")))}


def _open(shape: Sequence[int]) -> Extents:
    return tuple(f"N{axis}" for axis in range(len(shape)))


def _merge(partials: Sequence[Partial]) -> Partial:
    return Partial(*_run("merge", _partial_inputs(partials)))


def _partial_inputs(partials: Sequence[Partial]) -> dict[str, tuple[Any, Extents]]:
    inputs: dict[str, tuple[Any, Extents]] = {}
    for i, (output, largest, total) in enumerate(_partial(one, "a partial result") for one in partials):
        rows: Extents = ("B", "T", *_shape(output, "output", 4)[2:])
        inputs |= {f"output{i}": (output, rows), f"max{i}": (largest, rows[:3]), f"sum{i}": (total, rows[:3])}
    return inputs


def _partial(value: Any, name: str) -> Partial:
    if not isinstance(value, tuple) or len(value) != len(Partial._fields):
        raise InvalidArgumentError(
            f"[native] {name} is a {type(value).__name__}; a native.Partial(output, max, sum) is needed, as "
            "partial_attention gives"
        )
    return Partial(*value)


def _shape(value: Any, name: str, rank: int | None = None) -> tuple[int, ...]:
    try:
        extents = tuple(int(extent) for extent in (value if hasattr(value, "shape") else memoryview(value)).shape or ())
    except TypeError:
        raise InvalidArgumentError(
            f"[native] {name} is {type(value).__name__}; an array with __dlpack__ or the buffer protocol is needed"
        ) from None
    if rank is not None and len(extents) != rank:
        raise InvalidArgumentError(f"[native] {name} is {list(extents)}; it must have {rank} axes")
    return extents


def _dtype(value: Any, name: str) -> str:
    dtype = getattr(value, "dtype", None)
    text = str(dtype if dtype is not None else memoryview(value).format).removeprefix("torch.")
    if text not in _DTYPES or (text in _INTEGERS or text in _INTEGERS.values()) != (name == "first_query"):
        needed = "i32 or i64" if name == "first_query" else "f32, f16, bf16 or f64"
        raise InvalidArgumentError(f"[native] {name} is of {text}; {needed} is needed")
    return _DTYPES[text]


def _run(step: str, inputs: dict[str, tuple[Any, Extents]], **attrs: Any) -> list[Tensor]:
    """Runs a step on named inputs, each an array (None: absent) and the extents that the graph knows it by."""
    forms = tuple(
        (name, None if value is None else _Form(_dtype(value, name), shape)) for name, (value, shape) in inputs.items()
    )
    compiled = _compiled(step, forms, tuple(attrs.items()))
    return compiled(*(value for value, _ in inputs.values() if value is not None))


@functools.lru_cache(maxsize=_GRAPHS)
def _compiled(
    step: str, forms: tuple[tuple[str, _Form | None], ...], attrs: tuple[tuple[str, Any], ...]
) -> CompiledGraph:
    steps = _Steps(step, forms)
    names, values = _MAKERS.get(step, _Steps.one_node)(steps, step, dict(attrs))
    steps.builder.set_outputs(values, names)
    return Graph(steps.builder.finish()).compile()


os.register_at_fork(after_in_child=_compiled.cache_clear)  # threads do not survive a fork


class _Steps:
    """A graph of steps under construction: `inputs` are its inputs by name, floats in f32."""

    def __init__(self, name: str, forms: Sequence[tuple[str, _Form | None]]) -> None:
        self.builder = _core.GraphBuilder(name)
        given = [form for _, form in forms if form is not None]
        symbols = {extent for form in given for extent in form.shape if isinstance(extent, str) and extent.isalnum()}
        for symbol in sorted(symbols):
            self.builder.add_symbol(symbol, 0, _LARGEST)
        self.inputs = {name: self._input(name, form) for name, form in forms}

    def _input(self, name: str, form: _Form | None) -> _core.BuilderValue | None:
        if form is None:
            return None
        value = self.builder.add_input(name, form.dtype, form.shape)
        wanted = "i32" if name == "first_query" else "f32"
        return value if form.dtype == wanted else self.node("cast", [value], {"dtype": wanted})[0]

    def node(
        self, op: str, inputs: Sequence[_core.BuilderValue | None], attrs: dict[str, Any]
    ) -> list[_core.BuilderValue]:
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        return self.builder.node(op, inputs, attrs)

    def stacked(self, name: str) -> _core.BuilderValue:
        """All inputs of a name, `max0`, `max1`, ..., one after the other on a new first axis."""
        parts = [
            self.node("reshape", [value], {"shape": [1, *value.shape]})[0]
            for key, value in self.inputs.items()
            if key.rstrip("0123456789") == name and value is not None
        ]
        return parts[0] if len(parts) == 1 else self.node("concat", parts, {"axis": 0})[0]

    def one_node(self, op: str, attrs: dict[str, Any]) -> tuple[list[str], list[_core.BuilderValue]]:
        values = self.node(op, list(self.inputs.values()), attrs)
        return [f"{op}.{i}" for i in range(len(values))], values

    def partial_attention(self, _: str, attrs: dict[str, Any]) -> tuple[list[str], list[_core.BuilderValue]]:
        q, k, v, *others = self.inputs.values()
        blocks = self.node("qkv_load", [q, k, v], {})
        stacked = self.node("block_attention", [*blocks, *others], attrs)
        values = [self.node("reshape", [value], {"shape": list(value.shape[1:])})[0] for value in stacked]
        return list(Partial._fields), values

    def merge(self, _: str, attrs: dict[str, Any]) -> tuple[list[str], list[_core.BuilderValue]]:
        output, largest, total = (self.stacked(name) for name in Partial._fields)
        merged = self.node("output_merge", [output, largest, total], {"finish": False})
        return list(Partial._fields), [*merged, *self.node("online_softmax", [largest, total], attrs)]

    def finish(self, _: str, attrs: dict[str, Any]) -> tuple[list[str], list[_core.BuilderValue]]:
        return ["output"], self.node("output_merge", [self.stacked(name) for name in Partial._fields], attrs)


_MAKERS = {"partial_attention": _Steps.partial_attention, "merge": _Steps.merge, "finish": _Steps.finish}

# SPDX-License-Identifier: Apache-2.0
"""Elementwise operators, with PyTorch's rules of promotion."""

from __future__ import annotations

from typing import Any

from atb._core import BuilderValue

from atb_torch.context import Context, is_float
from atb_torch.errors import Refused
from atb_torch.lowering.registry import lowers

# --- One operand. Integers give floats, except where the operator keeps its dtype.

_UNARY = {
    "neg.default": "neg",
    "abs.default": "abs",
    "exp.default": "exp",
    "log.default": "log",
    "sqrt.default": "sqrt",
    "rsqrt.default": "rsqrt",
    "reciprocal.default": "reciprocal",
    "sin.default": "sin",
    "cos.default": "cos",
    "tanh.default": "tanh",
    "sigmoid.default": "sigmoid",
    "erf.default": "erf",
    "special_erf.default": "erf",
    "silu.default": "silu",
    "relu.default": "relu",
}


def _register_unary(name: str, op: str) -> None:
    @lowers(name)
    def lower(ctx: Context, x: BuilderValue) -> BuilderValue:
        return ctx(op, ctx.cast(x, ctx.out_dtype))


for _name, _op in _UNARY.items():
    _register_unary(_name, _op)


# --- Two operands, computed in the dtype of the result.

_BINARY = {
    "mul.Tensor": "mul",
    "mul.Scalar": "mul",
    "div.Tensor": "div",
    "div.Scalar": "div",
    "true_divide.Tensor": "div",
    "maximum.default": "maximum",
    "minimum.default": "minimum",
    "pow.Tensor_Tensor": "pow",
    "pow.Scalar": "pow",
    "remainder.Tensor": "remainder",
    "remainder.Scalar": "remainder",
    "floor_divide.default": "floor_divide",
    "floor_divide.Scalar": "floor_divide",
}


def _binary(ctx: Context, op: str, a: Any, b: Any) -> BuilderValue:
    if ctx.out_dtype == "bool":
        raise Refused(f"{op} of booleans is not supported; use the logical operators")
    # As eager does: a number that halves are multiplied with is not rounded to halves first, one that is added is.
    exact = op in ("mul", "div") and ctx.out_dtype in ("f16", "bf16") and isinstance(b, (int, float))
    return ctx(op, ctx.operand(a, ctx.out_dtype), ctx.operand(b, "f32" if exact else ctx.out_dtype))


def _register_binary(name: str, op: str) -> None:
    @lowers(name)
    def lower(ctx: Context, a: Any, b: Any) -> BuilderValue:
        return _binary(ctx, op, a, b)


for _name, _op in _BINARY.items():
    _register_binary(_name, _op)


@lowers("add.Tensor", "add.Scalar")
def add(ctx: Context, a: Any, b: Any, alpha: Any = 1) -> BuilderValue:
    if ctx.out_dtype == "bool":
        return logical_or(ctx, a, b)
    return _binary(ctx, "add", a, _times(ctx, b, alpha))


@lowers("sub.Tensor", "sub.Scalar")
def sub(ctx: Context, a: Any, b: Any, alpha: Any = 1) -> BuilderValue:
    return _binary(ctx, "sub", a, _times(ctx, b, alpha))


@lowers("rsub.Tensor", "rsub.Scalar")
def rsub(ctx: Context, a: Any, b: Any, alpha: Any = 1) -> BuilderValue:
    return _binary(ctx, "sub", b, _times(ctx, a, alpha))


def _times(ctx: Context, x: Any, factor: Any) -> Any:
    return x if factor == 1 else _binary(ctx, "mul", x, factor)


@lowers("div.Tensor_mode", "div.Scalar_mode")
def div_mode(ctx: Context, a: Any, b: Any, *, rounding_mode: str | None = None) -> BuilderValue:
    if rounding_mode == "trunc":
        raise Refused("division that rounds towards zero is not supported")
    return _binary(ctx, "div" if rounding_mode is None else "floor_divide", a, b)


@lowers("pow.Tensor_Scalar")
def pow_scalar(ctx: Context, x: BuilderValue, exponent: Any) -> BuilderValue:
    x = ctx.cast(x, ctx.out_dtype)
    if exponent == 1:
        return x
    return ctx("mul", x, x) if exponent == 2 else _binary(ctx, "pow", x, exponent)


@lowers("square.default")
def square(ctx: Context, x: BuilderValue) -> BuilderValue:
    return ctx("mul", x, x)


@lowers("gelu.default")
def gelu(ctx: Context, x: BuilderValue, *, approximate: str = "none") -> BuilderValue:
    return ctx("gelu", x, approximate=approximate)


@lowers("clamp.default", "clamp.Tensor", "clip.default")
def clamp(ctx: Context, x: BuilderValue, min: Any = None, max: Any = None) -> BuilderValue:
    if min is not None:
        x = _binary(ctx, "maximum", x, min)
    return x if max is None else _binary(ctx, "minimum", x, max)


@lowers("clamp_min.default", "clamp_min.Tensor")
def clamp_min(ctx: Context, x: BuilderValue, min: Any) -> BuilderValue:
    return _binary(ctx, "maximum", x, min)


@lowers("clamp_max.default", "clamp_max.Tensor")
def clamp_max(ctx: Context, x: BuilderValue, max: Any) -> BuilderValue:
    return _binary(ctx, "minimum", x, max)


@lowers("addcmul.default")
def addcmul(ctx: Context, x: Any, a: Any, b: Any, *, value: Any = 1) -> BuilderValue:
    return _binary(ctx, "add", x, _times(ctx, _binary(ctx, "mul", a, b), value))


# --- Comparisons: less and equal, swapped or negated. A comparison with NaN is false, its negation must not be used.


def _compare(ctx: Context, op: str, a: Any, b: Any) -> BuilderValue:
    dtype = ctx.promoted(a, b)
    if dtype == "bool" and op != "equal":
        dtype = "i32"
    return ctx(op, ctx.operand(a, dtype), ctx.operand(b, dtype))


@lowers("lt.Tensor", "lt.Scalar", "less.Tensor", "less.Scalar")
def lt(ctx: Context, a: Any, b: Any) -> BuilderValue:
    return _compare(ctx, "less", a, b)


@lowers("gt.Tensor", "gt.Scalar", "greater.Tensor", "greater.Scalar")
def gt(ctx: Context, a: Any, b: Any) -> BuilderValue:
    return _compare(ctx, "less", b, a)


@lowers("le.Tensor", "le.Scalar", "less_equal.Tensor", "less_equal.Scalar")
def le(ctx: Context, a: Any, b: Any) -> BuilderValue:
    return _compare(ctx, "less_equal", a, b)


@lowers("ge.Tensor", "ge.Scalar", "greater_equal.Tensor", "greater_equal.Scalar")
def ge(ctx: Context, a: Any, b: Any) -> BuilderValue:
    return _compare(ctx, "less_equal", b, a)


@lowers("eq.Tensor", "eq.Scalar")
def eq(ctx: Context, a: Any, b: Any) -> BuilderValue:
    return _compare(ctx, "equal", a, b)


@lowers("ne.Tensor", "ne.Scalar", "not_equal.Tensor", "not_equal.Scalar")
def ne(ctx: Context, a: Any, b: Any) -> BuilderValue:
    return ctx("logical_not", _compare(ctx, "equal", a, b))


# --- Booleans. The bitwise operators are logical ones on booleans and refused on integers.


def _logical(ctx: Context, op: str, a: Any, b: Any) -> BuilderValue:
    return ctx(op, ctx.operand(a, "bool"), ctx.operand(b, "bool"))


def _require_bool(ctx: Context, op: str) -> None:
    if ctx.out_dtype != "bool":
        raise Refused(f"{op} of {ctx.out_dtype} is not supported, only that of booleans")


@lowers("logical_and.default")
def logical_and(ctx: Context, a: Any, b: Any) -> BuilderValue:
    return _logical(ctx, "logical_and", a, b)


@lowers("logical_or.default")
def logical_or(ctx: Context, a: Any, b: Any) -> BuilderValue:
    return _logical(ctx, "logical_or", a, b)


@lowers("logical_not.default")
def logical_not(ctx: Context, x: BuilderValue) -> BuilderValue:
    return ctx("logical_not", ctx.cast(x, "bool"))


@lowers("logical_xor.default")
def logical_xor(ctx: Context, a: Any, b: Any) -> BuilderValue:
    return ctx("logical_not", _logical(ctx, "equal", a, b))


@lowers("__and__.Tensor", "bitwise_and.Tensor", "__and__.Scalar", "bitwise_and.Scalar")
def bitwise_and(ctx: Context, a: Any, b: Any) -> BuilderValue:
    _require_bool(ctx, "bitwise and")
    return logical_and(ctx, a, b)


@lowers("__or__.Tensor", "bitwise_or.Tensor", "__or__.Scalar", "bitwise_or.Scalar")
def bitwise_or(ctx: Context, a: Any, b: Any) -> BuilderValue:
    _require_bool(ctx, "bitwise or")
    return logical_or(ctx, a, b)


@lowers("__xor__.Tensor", "bitwise_xor.Tensor")
def bitwise_xor(ctx: Context, a: Any, b: Any) -> BuilderValue:
    _require_bool(ctx, "bitwise xor")
    return logical_xor(ctx, a, b)


@lowers("bitwise_not.default")
def bitwise_not(ctx: Context, x: BuilderValue) -> BuilderValue:
    _require_bool(ctx, "bitwise not")
    return logical_not(ctx, x)


# --- Choices


@lowers("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(ctx: Context, condition: BuilderValue, a: Any, b: Any) -> BuilderValue:
    return ctx("where", condition, ctx.operand(a, ctx.out_dtype), ctx.operand(b, ctx.out_dtype))


@lowers("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(ctx: Context, x: BuilderValue, mask: BuilderValue, value: Any) -> BuilderValue:
    return ctx("where", mask, ctx.operand(value, x.dtype), x)


# --- Conversions, and what changes nothing


@lowers("to.dtype", "to.device", "to.dtype_layout", "to.other", "type_as.default", "_to_copy.default")
def to(ctx: Context, x: BuilderValue, *_args: Any, **_kwargs: Any) -> BuilderValue:
    if ctx.out.device.type != "cpu":
        raise Refused(f"a conversion to the device {ctx.out.device}; ATB runs the whole module on the CPU")
    return ctx.cast(x, ctx.out_dtype)


@lowers("float.default", "double.default", "half.default", "bfloat16.default", "long.default", "int.default")
def to_dtype(ctx: Context, x: BuilderValue) -> BuilderValue:
    return ctx.cast(x, ctx.out_dtype)


@lowers(
    "alias.default",
    "clone.default",
    "contiguous.default",
    "detach.default",
    "lift.default",
    "lift_fresh.default",
    "lift_fresh_copy.default",
    "positive.default",
)
def same(ctx: Context, x: BuilderValue, **_kwargs: Any) -> BuilderValue:
    return x


@lowers("dropout.default", "feature_dropout.default", "alpha_dropout.default")
def dropout(ctx: Context, x: BuilderValue, p: float, train: bool) -> BuilderValue:
    if train and p != 0:
        raise Refused(f"live dropout (p = {p}) draws at random; call .eval() before compiling")
    return x


def needs_float(x: BuilderValue, what: str) -> None:
    """Refuses integers where the operator computes in floats only."""
    if not is_float(x):
        raise Refused(f"{what} of {x.dtype} is not supported, only of floats")

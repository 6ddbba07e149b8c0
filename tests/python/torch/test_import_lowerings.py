# SPDX-License-Identifier: Apache-2.0
"""Every lowering against eager PyTorch on random inputs of odd shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import atb
import atb_torch
import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.real


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def make(spec: str, seed: int) -> torch.Tensor:
    """Normal floats "f:3,5", positive ones "p:3,5", integers below 7 "i:3,5<7" (from -7: "<-7"), booleans "b:3,5"."""
    generator = torch.Generator().manual_seed(seed)
    kind, _, rest = spec.partition(":")
    sizes, _, bound = rest.partition("<")
    shape = [int(size) for size in sizes.split(",") if size]
    if kind == "b":
        return torch.rand(shape, generator=generator) < 0.5
    if kind == "i":
        low, high = (int(bound), -int(bound)) if bound.startswith("-") else (0, int(bound or 9))
        return torch.randint(low, high, shape, generator=generator)
    values = torch.randn(shape, generator=generator)
    return values.abs() + 0.1 if kind == "p" else values


def check(function: Callable[..., Any], *specs: str) -> None:
    inputs = [make(spec, seed) for seed, spec in enumerate(specs)]
    module = Function(function).eval()
    with torch.no_grad():
        expected = module(*[tensor.clone() for tensor in inputs])
        actual = atb_torch.compile(module, inputs, threads=1)(*[tensor.clone() for tensor in inputs])
    if isinstance(expected, torch.Tensor):
        expected, actual = [expected], [actual]
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == e.dtype
        assert a.shape == e.shape
        if e.is_floating_point():
            torch.testing.assert_close(a, e, rtol=2e-5, atol=2e-5, equal_nan=True)
        else:
            assert torch.equal(a, e)


UNARY: dict[str, tuple[Callable[..., Any], str]] = {
    "neg": (torch.neg, "f:3,5"),
    "neg_int": (torch.neg, "i:3,5<-9"),
    "abs": (torch.abs, "f:3,5"),
    "exp": (torch.exp, "f:3,5"),
    "exp_int": (torch.exp, "i:3,5<4"),
    "log": (torch.log, "p:3,5"),
    "sqrt": (torch.sqrt, "p:3,5"),
    "rsqrt": (torch.rsqrt, "p:3,5"),
    "reciprocal": (torch.reciprocal, "p:3,5"),
    "sin": (torch.sin, "f:3,5"),
    "cos": (torch.cos, "f:3,5"),
    "tanh": (torch.tanh, "f:3,5"),
    "sigmoid": (torch.sigmoid, "f:3,5"),
    "erf": (torch.erf, "f:3,5"),
    "silu": (F.silu, "f:3,5"),
    "relu": (F.relu, "f:3,5"),
    "gelu": (F.gelu, "f:3,5"),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), "f:3,5"),
    "square": (torch.square, "f:3,5"),
    "pow_2": (lambda x: x**2, "f:3,5"),
    "pow_3": (lambda x: x.pow(3.0), "f:3,5"),
    "pow_half": (lambda x: x**0.5, "p:3,5"),
    "pow_of_scalar": (lambda x: 10000.0**x, "f:3,5"),
    "clamp": (lambda x: x.clamp(-0.5, 0.7), "f:3,5"),
    "clamp_min": (lambda x: x.clamp(min=0.1), "f:3,5"),
    "clamp_max": (lambda x: x.clamp_max(0.1), "f:3,5"),
    "rsub": (lambda x: 1.5 - x, "f:3,5"),
    "div_scalar": (lambda x: x / 3, "f:3,5"),
    "div_int": (lambda x: x / 2, "i:3,5<9"),
    "scalar_div": (lambda x: 1.0 / x, "p:3,5"),
    "floor_divide": (lambda x: x // 3, "i:3,5<-9"),
    "remainder": (lambda x: x % 4, "i:3,5<-9"),
    "add_alpha": (lambda x: torch.add(x, x, alpha=0.5), "f:3,5"),
    "int_times_float": (lambda x: x * 0.5, "i:3,5<9"),
    "int_plus_int": (lambda x: x + 3, "i:3,5<9"),
    "not": (lambda x: ~x, "b:3,5"),
    "logical_not": (torch.logical_not, "i:3,5<2"),
    "compare_scalar": (lambda x: (x > 0.1, x >= 0.1, x < 0.1, x <= 0.1, x == 0.1, x != 0.1), "f:3,5"),
    "compare_int": (lambda x: (x > 4, x >= 4, x < 4, x <= 4, x == 4, x != 4), "i:3,5<9"),
    "masked_fill": (lambda x: x.masked_fill(x > 0, -1.0), "f:3,5"),
    "where_scalar": (lambda x: torch.where(x > 0, x, 0.0), "f:3,5"),
    "where_scalars": (lambda x: torch.where(x, 0.0, -1e9), "b:3,5"),
    "to_float": (lambda x: x.float(), "i:3,5<9"),
    "to_long": (lambda x: (x * 10).long(), "f:3,5"),
    "to_bool": (lambda x: x.bool(), "i:3,5<3"),
    "bool_to_long": (lambda x: x.long(), "b:3,5"),
    "type_as": (lambda x: (x > 0).type_as(x), "f:3,5"),
    "dropout_in_eval": (lambda x: F.dropout(x, 0.5, False), "f:3,5"),
}

SHAPES: dict[str, tuple[Callable[..., Any], str]] = {
    "view": (lambda x: x.view(x.shape[0], -1), "f:3,5,2"),
    "reshape": (lambda x: x.transpose(0, 1).reshape(-1), "f:3,5"),
    "flatten": (lambda x: x.flatten(1), "f:3,5,2"),
    "unflatten": (lambda x: x.unflatten(-1, (3, 2)), "f:3,6"),
    "unsqueeze": (lambda x: x.unsqueeze(-1), "f:3,5"),
    "squeeze": (lambda x: x[:, :1].squeeze(1), "f:3,5"),
    "squeeze_all": (lambda x: x.reshape(1, 3, 1, 5).squeeze(), "f:3,5"),
    "transpose": (lambda x: x.transpose(-1, -2), "f:3,5,2"),
    "permute": (lambda x: x.permute(2, 0, 1), "f:3,5,2"),
    "t": (lambda x: x.t(), "f:3,5"),
    "T": (lambda x: x.T, "f:3,5"),
    "mT": (lambda x: x.mT, "f:2,3,5"),
    "movedim": (lambda x: x.movedim(0, 2), "f:3,5,2"),
    "expand": (lambda x: x[:, None].expand(3, 4, 5), "f:3,5"),
    "expand_minus_one": (lambda x: x[:, :1].expand(-1, 7), "f:3,5"),
    "repeat": (lambda x: x.repeat(2, 1, 3), "f:3,5"),
    "repeat_interleave": (lambda x: x.repeat_interleave(3, dim=1), "f:3,5,2"),
    "repeat_interleave_flat": (lambda x: x.repeat_interleave(2), "f:3,5"),
    "cat": (lambda x: torch.cat([x, -x, x[:, :2]], dim=1), "f:3,5"),
    "cat_mixed": (lambda x: torch.cat([x, x > 0], dim=-1), "f:3,5"),
    "stack": (lambda x: torch.stack([x, -x], dim=1), "f:3,5"),
    "stack_last": (lambda x: torch.stack([x, -x], dim=-1), "f:3,5"),
    "slice": (lambda x: x[1:, 1:4], "f:3,5"),
    "slice_negative": (lambda x: x[..., -2:], "f:3,5"),
    "slice_to_negative": (lambda x: x[..., :-1], "f:3,5"),
    "slice_step": (lambda x: x[..., 1::2], "f:3,6"),
    "narrow": (lambda x: x.narrow(1, 1, 3), "f:3,5"),
    "select": (lambda x: x[:, -1], "f:3,5"),
    "split": (lambda x: x.split(2, dim=-1), "f:3,5"),
    "split_sizes": (lambda x: x.split([1, 4], dim=-1), "f:3,5"),
    "chunk": (lambda x: x.chunk(2, dim=-1), "f:3,6"),
    "unbind": (lambda x: x.unbind(-1), "f:3,4"),
    "tril": (lambda x: x.tril(), "f:4,4"),
    "triu": (lambda x: x.triu(1), "f:3,5"),
    "triu_bool": (lambda x: x.triu(-1), "b:4,4"),
    "arange": (lambda x: x + torch.arange(x.shape[1]), "f:3,5"),
    "arange_start": (lambda x: torch.arange(2, x.shape[0] + 2) * x[:, 0].long(), "i:5,3<9"),
    "arange_step": (lambda x: x + torch.arange(0, 10, 2).float(), "f:3,5"),
    "full": (lambda x: x + torch.full((x.shape[0], 1), 2.5), "f:3,5"),
    "full_like": (lambda x: torch.full_like(x, -2.0), "f:3,5"),
    "zeros": (lambda x: x + torch.zeros(5), "f:3,5"),
    "zeros_like": (lambda x: torch.zeros_like(x), "i:3,5<9"),
    "ones_like": (lambda x: torch.ones_like(x, dtype=torch.bool), "f:3,5"),
    "new_ones": (lambda x: x + x.new_ones(3, 1), "f:3,5"),
    "size_as_number": (lambda x: x * x.shape[0], "f:3,5"),
}

REDUCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "sum": (lambda x: x.sum(), "f:3,5"),
    "sum_dim": (lambda x: x.sum(1, keepdim=True), "f:3,5,2"),
    "sum_bool": (lambda x: x.sum(-1), "b:3,5"),
    "mean": (lambda x: x.mean(-1, keepdim=True), "f:3,5"),
    "mean_dims": (lambda x: x.mean((0, 2)), "f:3,5,2"),
    "amax": (lambda x: x.amax(-1), "f:3,5"),
    "amin": (lambda x: x.amin(0), "f:3,5"),
    "max_all": (lambda x: x.max(), "i:3,5<99"),
    "any": (lambda x: x.any(-1), "b:5,2"),
    "all": (lambda x: x.all(-1), "b:5,2"),
    "var": (lambda x: x.var(-1), "f:3,5"),
    "var_biased": (lambda x: x.var(-1, unbiased=False, keepdim=True), "f:3,5"),
    "std": (lambda x: x.std(-1), "f:3,5"),
    "softmax": (lambda x: x.softmax(-1), "f:3,5"),
    "softmax_inner": (lambda x: x.softmax(1), "f:3,5,2"),
    "log_softmax": (lambda x: x.log_softmax(-1), "f:3,5"),
    "layer_norm": (lambda x: F.layer_norm(x, (5,)), "f:3,5"),
    "rms_norm": (lambda x: F.rms_norm(x, (5,), eps=1e-5), "f:3,5"),
    "cumsum": (lambda x: x.cumsum(-1), "i:3,5<9"),
    "cumsum_bool": (lambda x: x.cumsum(0), "b:3,5"),
    "diff": (lambda x: x.diff(dim=-1), "i:3,5<9"),
    "diff_prepend": (lambda x: x.diff(dim=-1, prepend=x[:, :1] - 1), "i:3,5<9"),
}

OPERANDS: dict[str, tuple[Any, ...]] = {
    "add": (torch.add, "f:3,5", "f:5"),
    "sub": (torch.sub, "f:3,5", "f:3,1"),
    "mul": (torch.mul, "f:3,5", "f:1,5"),
    "div": (torch.div, "f:3,5", "p:3,5"),
    "maximum": (torch.maximum, "f:3,5", "f:3,5"),
    "minimum": (torch.minimum, "f:3,5", "f:3,5"),
    "pow": (torch.pow, "p:3,5", "f:3,5"),
    "int_plus_float": (torch.add, "i:3,5<9", "f:3,5"),
    "lt": (torch.lt, "i:3,5<4", "i:3,5<4"),
    "le": (torch.le, "f:3,1", "f:1,5"),
    "gt": (torch.gt, "i:3,1<4", "i:1,5<4"),
    "ge": (torch.ge, "f:3,5", "f:3,5"),
    "eq": (torch.eq, "i:3,5<3", "i:3,5<3"),
    "ne": (torch.ne, "b:3,5", "b:3,5"),
    "and": (lambda a, b: a & b, "b:3,5", "b:5"),
    "or": (lambda a, b: a | b, "b:3,5", "b:3,1"),
    "xor": (lambda a, b: a ^ b, "b:3,5", "b:3,5"),
    "where": (torch.where, "b:3,5", "f:3,5", "f:5"),
    "linear": (F.linear, "f:3,5", "f:7,5", "f:7"),
    "linear_vector_weight": (F.linear, "f:3,5", "f:5"),
    "matmul": (torch.matmul, "f:2,3,5", "f:2,5,4"),
    "matmul_broadcast": (torch.matmul, "f:2,1,3,5", "f:4,5,3"),
    "matmul_vector": (torch.matmul, "f:2,3,5", "f:5"),
    "vector_matmul": (torch.matmul, "f:5", "f:2,5,3"),
    "mm": (torch.mm, "f:3,5", "f:5,4"),
    "bmm": (torch.bmm, "f:2,3,5", "f:2,5,4"),
    "addmm": (torch.addmm, "f:4", "f:3,5", "f:5,4"),
    "addmm_scaled": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2.0), "f:3,4", "f:3,5", "f:5,4"),
    "baddbmm": (torch.baddbmm, "f:2,3,4", "f:2,3,5", "f:2,5,4"),
    "embedding": (F.embedding, "i:3,4<7", "f:7,5"),
    "index": (lambda x, i: x[i], "f:7,5", "i:3,4<-7"),
    "index_two": (lambda x, i, j: x[i, j], "f:7,5,2", "i:3,1<7", "i:1,4<5"),
    "index_inner": (lambda x, i: x[:, i], "f:3,7,2", "i:4<7"),
    "index_inner_two": (lambda x, i, j: x[:, i, j], "f:2,7,5,3", "i:4<7", "i:4<5"),
    "index_apart": (lambda x, i, j: x[i, :, j], "f:7,3,5", "i:4<7", "i:4<5"),
    "index_constant": (lambda x: x[:, :, [-2]], "f:2,3,6"),
    "index_range": (lambda x: x[:, [1, 2, 3]], "f:2,6"),
    "index_list": (lambda x: x[:, [3, 0]], "f:2,6"),
    "gather": (lambda x, i: x.gather(1, i), "f:3,7,4", "i:2,5,4<7"),
    "gather_last": (lambda x, i: torch.gather(x, -1, i), "i:3,7", "i:3,4<7"),
    "gather_one_row": (lambda x, i: torch.gather(x.expand(1, -1), 1, i), "f:1,7", "i:1,4<7"),
    "gather_expanded": (lambda x, i: torch.gather(x.expand(3, -1), 1, i), "f:1,7", "i:3,4<7"),
    "index_select": (lambda x, i: x.index_select(1, i), "f:3,7", "i:4<7"),
    "layer_norm_affine": (lambda x, w, b: F.layer_norm(x, (5,), w, b, 1e-3), "f:3,5", "f:5", "f:5"),
    "rms_norm_affine": (lambda x, w: F.rms_norm(x, (5,), w, 1e-3), "f:3,5", "f:5"),
}


# Operators without a lowering of their own, by PyTorch's definitions.
DEFINED: dict[str, tuple[Any, ...]] = {
    "einsum": (lambda a, b: torch.einsum("bid,bjd->bij", a, b), "f:2,3,5", "f:2,4,5"),
    "hardswish": (F.hardswish, "f:3,5"),
    "hardtanh": (F.hardtanh, "f:3,5"),
    "leaky_relu": (F.leaky_relu, "f:3,5"),
    "logsumexp": (lambda x: x.logsumexp(-1), "f:3,5"),
    "glu": (F.glu, "f:3,6"),
    "pad": (lambda x: F.pad(x, (1, 2)), "f:3,6"),
    "pad_axes": (lambda x: F.pad(x, (1, 0, 0, 3), value=0.5), "f:2,3,6"),
    "pad_cut": (lambda x: F.pad(x, (-1, 2, 3, -2)), "f:2,5,6"),
    "pad_all_cut": (lambda x: F.pad(x, (-1, -1)), "f:2,5"),
    "pad_int": (lambda x: F.pad(x, (0, 1), value=-100)[:, 1:], "i:2,5<9"),
    "pad_bool": (lambda x: F.pad(x, (0, 1), value=True), "b:2,5"),
    "pad_nd": (lambda x: torch.constant_pad_nd(x, [2, -1], 3.0), "f:2,5"),
    "batch_norm": (lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, eps=1e-3), "f:2,3,5", "f:3", "p:3", "f:3", "f:3"),
    "batch_norm_plain": (F.batch_norm, "f:4,3", "f:3", "p:3"),
    "batch_norm_scaled": (F.batch_norm, "f:2,3,4,5", "f:3", "p:3", "f:3"),
}

TABLES: dict[str, tuple[Any, ...]] = {**UNARY, **SHAPES, **REDUCTIONS, **OPERANDS, **DEFINED}


@pytest.mark.parametrize("name", TABLES)
def test_lowering(name: str) -> None:
    check(*TABLES[name])


ATTENTION: dict[str, tuple[Any, ...]] = {
    "plain": (F.scaled_dot_product_attention, "f:2,3,5,8", "f:2,3,7,8", "f:2,3,7,6"),
    "scale": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3),
        "f:2,3,5,8",
        "f:2,3,7,8",
        "f:2,3,7,8",
    ),
    "causal": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        "f:2,3,5,8",
        "f:2,3,5,8",
        "f:2,3,5,8",
    ),
    "causal_longer_keys": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        "f:2,3,5,8",
        "f:2,3,9,8",
        "f:2,3,9,8",
    ),
    "bool_mask": (F.scaled_dot_product_attention, "f:2,3,5,8", "f:2,3,7,8", "f:2,3,7,8", "b:5,7"),
    "float_mask": (F.scaled_dot_product_attention, "f:2,3,5,8", "f:2,3,7,8", "f:2,3,7,8", "f:2,1,5,7"),
    "grouped": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        "f:2,6,5,8",
        "f:2,2,7,8",
        "f:2,2,7,8",
    ),
    "rank_3": (F.scaled_dot_product_attention, "f:2,5,8", "f:2,7,8", "f:2,7,8"),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str) -> None:
    check(*ATTENTION[name])


def test_attention_mistakes_are_noticed() -> None:
    with pytest.raises(AssertionError):
        check_against(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=1.1 / math.sqrt(8)),
            F.scaled_dot_product_attention,
        )


def check_against(compiled: Callable[..., Any], expected: Callable[..., Any]) -> None:
    inputs = [make("f:2,3,5,8", seed) for seed in range(3)]
    with torch.no_grad():
        actual = atb_torch.compile(Function(compiled).eval(), inputs, threads=1)(*inputs)
    torch.testing.assert_close(actual, expected(*inputs), rtol=2e-5, atol=2e-5)


REFUSED: dict[str, tuple[Any, ...]] = {
    "live_dropout": (lambda x: F.dropout(x, 0.5, True), "f:3,5"),
    "sdpa_dropout": (lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.1), "f:2,3,5"),
    "bitwise": (lambda x: x & 3, "i:3,5<9"),
    "bits": (lambda x: x.view(torch.int32), "f:3,5"),
    "unknown": (lambda x: torch.fft.fft(x).abs(), "f:3,5"),
    "truncated": (lambda x: torch.div(x, 2, rounding_mode="trunc"), "i:3,5<9"),
    "batch_statistics": (lambda x: F.batch_norm(x, None, None, training=True), "f:3,5"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason(name: str) -> None:
    function, *specs = REFUSED[name]
    with pytest.raises(atb.UnsupportedError, match=r"\[atb_torch\]"):
        check(function, *specs)


def test_everything_missing_is_listed_at_once() -> None:
    class Inner(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(x) + torch.digamma(x)

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([Inner(), Inner()])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    with pytest.raises(atb.UnsupportedError) as caught:
        atb_torch.compile(Outer().eval(), torch.rand(3, 5))
    text = str(caught.value)
    assert "4 operators" in text
    for part in ("bessel_j0", "digamma", "layers.0", "layers.1"):
        assert part in text


def test_a_form_that_is_refused_has_its_own_shape_for_what_follows() -> None:
    """Its definition in other operators may get halfway, to a result of another rank."""
    net = torch.nn.BatchNorm1d(8, track_running_stats=False).eval()
    x = torch.randn(2, 5, 8)
    with torch.no_grad(), pytest.raises(atb.UnsupportedError, match=r"1 operator cannot be lowered: aten\.batch_norm"):
        atb_torch.compile(Function(lambda x: net(x.transpose(1, 2)).transpose(1, 2)).eval(), (x,), threads=1)
    for refused in (F.instance_norm, lambda x: F.max_pool1d(x, 2)):
        model = Function(lambda x, refused=refused: refused(x.transpose(1, 2)).transpose(1, 2)).eval()
        with torch.no_grad(), pytest.raises(atb.UnsupportedError, match="cannot be lowered"):
            atb_torch.compile(model, (x,), threads=1)


def test_batch_norm_between_transposes_in_every_dtype() -> None:
    net, x = torch.nn.BatchNorm1d(8), torch.randn(2, 5, 8)
    with torch.no_grad():
        for _ in range(3):
            net(torch.randn(4, 8) * 2 + 1)
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
            net = net.eval().to(dtype)
            model = Function(lambda x, net=net: net(x.transpose(1, 2)).transpose(1, 2)).eval()
            actual, expected = atb_torch.compile(model, threads=1)(x.to(dtype)), model(x.to(dtype))
            assert actual.dtype == dtype
            torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)

# SPDX-License-Identifier: Apache-2.0
"""Wrong calls of items and blocks: what is wrong, what is allowed, and the call as it should be."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import atb as core  # noqa: E402
import atb_torch as atb  # noqa: E402

CONSTRUCTORS = [
    *(atb.LayerNorm, atb.RMSNorm, atb.Linear, atb.FlashAttention, atb.RotaryEmbedding, atb.SiLU, atb.GELU, atb.ReLU),
    *(atb.Softmax, atb.Dropout, atb.GatedMLP, atb.Embedding, atb.Add, atb.Mul, atb.ResidualAdd, atb.Concat, atb.Split),
]
REQUIRED = {atb.Linear: ["out_features"], atb.FlashAttention: ["num_heads"], atb.GatedMLP: ["hidden_features"]}
REQUIRED[atb.Embedding] = ["num_embeddings", "embedding_dim"]
WRONG = {"int": "x", "float": "x", "bool": "x", "str": 3, "Sequence[int]": [1.5]}  # by annotation
H = 16


def message(make: Callable[[], Any]) -> str:
    with pytest.raises(core.InvalidArgumentError) as caught:
        make()
    return str(caught.value)


def needed(constructor: Any) -> dict[str, Any]:
    return dict.fromkeys(REQUIRED.get(constructor, []), 8)


def test_every_item_is_among_these() -> None:
    functions = {name: getattr(atb, name) for name in atb.__all__ if inspect.isfunction(getattr(atb, name))}
    made = {name for name, function in functions.items() if inspect.signature(function).return_annotation == "Item"}
    assert made == {"Branch", "Custom", *(constructor.__name__ for constructor in CONSTRUCTORS)}


@pytest.mark.parametrize("constructor", [*CONSTRUCTORS, atb.Branch], ids=lambda one: one.__name__)
def test_an_option_that_there_is_not(constructor: Any) -> None:
    text = message(lambda: constructor(**needed(constructor), speed=3))
    assert re.match(r"\[\w+\] there is no option speed; the call is ", text)
    assert text.endswith(f"; the call is {constructor.__name__}{bare(constructor)}")


def bare(constructor: Any) -> str:
    """The signature without annotations."""
    text = str(inspect.signature(constructor))
    text = re.sub(r": '[^']*'| -> '[^']*'", "", text)
    return text.replace(" = ", "=")


@pytest.mark.parametrize("constructor", REQUIRED, ids=lambda one: one.__name__)
def test_an_option_that_is_missing(constructor: Any) -> None:
    assert f"] {', '.join(REQUIRED[constructor])} must be given; the call is" in message(lambda: constructor("name"))


OPTIONS = [
    (constructor, parameter.name, kind)
    for constructor in CONSTRUCTORS
    for parameter in inspect.signature(constructor).parameters.values()
    for kind in [str(parameter.annotation).strip("'").partition(" |")[0]]
    if parameter.name != "name" and parameter.name != "rope"
]


@pytest.mark.parametrize(("constructor", "option", "kind"), OPTIONS)
def test_an_option_of_another_type(constructor: Any, option: str, kind: str) -> None:
    text = message(lambda: constructor(**{**needed(constructor), option: WRONG[kind]}))
    assert f"] {option}={WRONG[kind]!r}; expected " in text
    assert f"; the call is {constructor.__name__}(" in text


@pytest.mark.parametrize("constructor", [one for one in CONSTRUCTORS if one is not atb.Dropout])
def test_a_number_in_the_place_of_the_name(constructor: Any) -> None:
    text = message(lambda: constructor(64, **needed(constructor)))
    assert "the first argument is the item's name, text; got 64, and options are given by name" in text
    assert "the first argument is the item's name" in message(lambda: constructor(64))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: atb.Linear("up", 64), r"\[linear\] too many positional arguments; the call is Linear\("),
        (lambda: atb.Dropout(3), r"\[dropout\] p=3.0; expected 0 to 1; the call is"),
        (lambda: atb.Dropout(0.5, p=0.1), r"p is given twice, as 0.5 and 0.1"),
        (lambda: atb.Branch(atb.SiLU(), []), r"\[branch\] list 0 is no list of items, but silu\(\)"),
        (lambda: atb.Custom(3), r"\[custom\] target=None; expected a callable, or the name of an operator"),
        (
            lambda: atb.Custom("a", "tanh", out_features="x"),
            r"out_features='x'; expected an integer or a list of integers",
        ),
        (lambda: atb.FlashAttention(num_heads=2, rope={"base": 1e4}), r"rope has no 'base'; its keys are theta, dim, "),
        (lambda: atb.FlashAttention(num_heads=2, rope={"head_dim": 8}), r"rope has no 'head_dim'; its keys are theta"),
        (lambda: atb.FlashAttention(num_heads=2, rope={"theta": "x"}), r"theta='x'; expected a number"),
        (
            lambda: atb.FlashAttention(num_heads=2, rope="yes"),
            r"rope='yes'; expected True, a theta, Rotary.*keys theta, ",
        ),
        (lambda: atb.FlashAttention(num_heads=2, rope=atb.SiLU()), r"rope=silu\(\); expected True"),
        (lambda: atb.GraphOp(atb.SiLU()), r"\[GraphOp\] items is of type Item; expected a list, as in GraphOp\(\["),
        (lambda: atb.GraphOp([atb.SiLU()], name=3), r"\[GraphOp\] name=3; expected text"),
    ],
)
def test_other_wrong_calls(make: Callable[[], Any], text: str) -> None:
    assert re.search(text, message(make))


def test_dropout_takes_its_p_as_torch_does() -> None:
    assert atb.Dropout(0.1).attrs == {"p": 0.1}
    assert atb.Dropout(0).attrs == {"p": 0.0}
    assert (atb.Dropout("drop", p=0.2).name, atb.Dropout("drop").attrs) == ("drop", {"p": 0.5})
    block = atb.GraphOp([atb.Dropout(0.1)])
    with pytest.raises(core.UnsupportedError, match=r"Dropout is live \(p = 0.1\)"):
        block(torch.zeros(1, 2, H))


def test_numbers_of_other_libraries_are_options() -> None:
    assert atb.Linear(out_features=np.int64(3)).attrs == {"out_features": 3, "bias": True}
    assert atb.LayerNorm(eps=np.float32(0.5)).attrs["eps"] == 0.5
    assert atb.Split(sizes=(np.int32(1), 2)).attrs["sizes"] == [1, 2]
    block = atb.GraphOp([atb.Linear(out_features=np.int64(3))])
    assert block(torch.zeros(1, 2, H)).shape == (1, 2, 3)


def attention_block() -> atb.GraphOp:
    return atb.GraphOp(
        [
            atb.LayerNorm("query"),
            atb.Linear("qkv", out_features=3 * H),
            atb.FlashAttention("attn", num_heads=4, causal=True),
            atb.Linear("out", out_features=H),
            atb.ResidualAdd("output", "input"),
        ]
    )


def test_the_first_item_that_cannot_take_the_features_is_named() -> None:
    fresh, block = attention_block(), attention_block()
    block(torch.zeros(1, 2, H))
    wide = torch.zeros(1, 2, 2 * H)
    text = message(lambda: block(wide))
    assert text.startswith(r"[layer_norm] query: its weight is [16], but this call needs [32]; check the features")
    # Without parameters all takes 32, up to the sum of two widths.
    text = message(lambda: fresh(wide))
    assert 'adds "input", f32[B, T, 32], to what the item before gives, f32[B, T, 16]; expected one shape' in text
    text = message(lambda: block(torch.zeros(1, 2, H), residual=wide))
    assert text.startswith('[residual_add] output: adds "input", f32[B, T, 32]')
    assert block(torch.zeros(1, 2, H)).shape == (1, 2, H)


def test_nested_items_and_tied_parameters_are_checked_too() -> None:
    inner = atb.GraphOp([atb.Linear("up", out_features=H)], name="inner")
    block = atb.GraphOp([inner, atb.GatedMLP("mlp", hidden_features=8)])
    block(torch.zeros(1, 2, H))
    assert message(lambda: block(torch.zeros(1, 2, 8))).startswith(
        "[linear] inner.up: its weight is [16, 16], but this call needs [16, 8]"
    )
    tied = atb.GraphOp([atb.Linear("a", out_features=H), atb.Linear("b", out_features=H)])
    tied(torch.zeros(1, 2, H))
    tied.b.weight = tied.a.weight
    assert tied(torch.zeros(1, 2, H)).shape == (1, 2, H)
    tied.a.weight = tied.b.weight = torch.nn.Parameter(torch.zeros(H, 8))
    assert message(lambda: tied(torch.zeros(1, 2, H))).startswith("[linear] a: its weight is [16, 8]")


@pytest.mark.parametrize(
    "call",
    [
        lambda block, x: block(x[..., :8]),
        lambda block, x: block(x, residual=x[..., :8]),
        lambda block, x: block(x, mask=x),
        lambda block, x: block(),
        lambda block, x: block(x, attention_mask=torch.ones(2, 2, dtype=torch.bool)),
        lambda block, x: block(x, kv_cache=3),
        lambda block, x: block(x, positions=x),
        lambda block, x: block(x, x[:, :1]),
        lambda block, x: block(x.half()),
    ],
)
def test_errors_of_a_call_show_the_call(call: Callable[[Any, Any], Any]) -> None:
    block, x = attention_block(), torch.zeros(1, 2, H)
    block(x)
    assert message(lambda: call(block, x)).endswith(
        "; the call is block(x, key=None, value=None, residual=None, *, kv_cache=None, attention_mask=None, "
        "positions=None)"
    )

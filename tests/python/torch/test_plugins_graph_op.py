# SPDX-License-Identifier: Apache-2.0
"""Plugins in Python at the points of a GraphOp, against plain PyTorch that does the same there."""

from __future__ import annotations

import copy
import io
import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import atb as core  # noqa: E402
import atb_torch as atb  # noqa: E402
from block_reference import (  # noqa: E402
    attention,
    error,
    layer_norm,
    linear,
    randomize,
    rms_error,
    rotated,
)
from torch import nn  # noqa: E402

pytestmark = pytest.mark.real

HIDDEN, HEADS, BATCH, TOKENS = 32, 4, 2, 11
TOLERANCE = 1e-4
Hook = Callable[[Any], Any]
Hooks = dict[str, Hook]


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(BATCH, TOKENS, HIDDEN, generator=torch.Generator().manual_seed(3))


def attention_block(**options: Any) -> atb.GraphOp:
    return atb.GraphOp(
        [
            atb.LayerNorm("query", eps=1e-5),
            atb.Linear("qkv_proj", out_features=3 * HIDDEN),
            atb.FlashAttention("attn", num_heads=HEADS, causal=True, **options),
            atb.Linear("out_proj", out_features=HIDDEN),
            atb.SiLU("act"),
            atb.ResidualAdd("output", "input"),
        ]
    )


class Calls(atb.Plugin):
    """A plugin made of functions, which notes what it saw."""

    def __init__(self, before: Hook | None = None, after: Hook | None = None) -> None:
        self.before, self.after = before or (lambda values: values), after or (lambda values: values)
        self.seen: list[Any] = []
        self.contexts: list[atb.PluginContext] = []

    def preprocess(self, inputs: Any) -> Any:
        self.seen.append(inputs)
        self.contexts.append(self.context)
        return self.before(inputs)

    def postprocess(self, outputs: Any) -> Any:
        self.seen.append(outputs)
        self.contexts.append(self.context)
        return self.after(outputs)


class Post(atb.Plugin):
    def __init__(self, after: Hook) -> None:
        self.after = after

    def postprocess(self, outputs: Any) -> Any:
        return self.after(outputs)


def ready(block: atb.GraphOp, x: torch.Tensor) -> dict[str, torch.Tensor]:
    block(x)
    return randomize(block)


def expected(state: dict[str, torch.Tensor], x: torch.Tensor, before: Hooks, after: Hooks) -> torch.Tensor:
    """attention_block in plain PyTorch, with functions on the inputs and outputs of items by name."""

    def at(name: str, function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> torch.Tensor:
        values = before[name](inputs if len(inputs) > 1 else inputs[0]) if name in before else inputs
        output = function(*(values if isinstance(values, tuple) else (values,)))
        return after[name](output) if name in after else output

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attention(*(t.transpose(1, 2).reshape(*x.shape[:2], -1) for t in (q, k, v)), HEADS, causal=True)

    y = at("query", lambda t: layer_norm(state, "query" if "query.weight" in state else "0", t), x)
    y = at("qkv_proj", lambda t: linear(state, "qkv_proj", t), y)
    heads = [t.reshape(*x.shape[:2], HEADS, -1).transpose(1, 2) for t in y.chunk(3, -1)]
    y = at("attn", attend, *heads)
    y = at("out_proj", lambda t: linear(state, "out_proj", t), y)
    y = at("act", torch.nn.functional.silu, y)
    return at("output", lambda t, residual: t + residual, y, x)


def test_points_are_names_and_kinds() -> None:
    subjects = ["query", "norm", "qkv_proj", "linear", "attn", "attention", "out_proj", "act", "activation", "output"]
    subjects.append("residual")
    assert attention_block().plugin_points() == [
        f"{when}_{subject}" for subject in subjects for when in ("pre", "post")
    ]


def test_points_of_items_without_names_and_inside_others() -> None:
    inner = atb.GraphOp(
        [atb.GatedMLP("gated", hidden_features=8), atb.RotaryEmbedding(), atb.FlashAttention(num_heads=2)]
    )
    block = atb.GraphOp([inner, atb.Branch([atb.Linear("left", out_features=8)], [atb.ReLU()]), atb.Add()])
    points = block.plugin_points()
    for name in ("0", "graph", "0.gated", "mlp", "0.2", "attention", "1", "branch", "left", "1.1.0", "2", "add"):
        assert f"pre_{name}" in points and f"post_{name}" in points
    # Rotated inside the attention: nothing comes out of it.
    assert not any("rotary" in point or point == "pre_0.1" for point in points)


def scaled(values: Any) -> Any:
    """Another function for each of several values."""
    if isinstance(values, tuple):
        return tuple(value * (1.25 + i) + 0.1 * i for i, value in enumerate(values))
    return values * 1.25 - 0.1


@pytest.mark.parametrize("name", ["query", "qkv_proj", "attn", "out_proj", "act", "output"])
def test_a_plugin_wraps_an_item(name: str, x: torch.Tensor) -> None:
    block = attention_block()
    state = ready(block, x)
    plugin = Calls(scaled, lambda y: torch.tanh(y) + y)
    block.register_plugin(f"pre_{name}", plugin)
    want = expected(state, x, {name: scaled}, {name: lambda y: torch.tanh(y) + y})
    assert error(block(x), want) < TOLERANCE
    assert error(expected(state, x, {}, {}), want) > 100 * TOLERANCE
    assert len(plugin.seen) == 2


@pytest.mark.parametrize("name", ["query", "qkv_proj", "attn", "out_proj", "act", "output"])
def test_after_an_item_only_postprocess_runs(name: str, x: torch.Tensor) -> None:
    block = attention_block()
    state = ready(block, x)
    plugin = Calls(lambda values: 1 / 0, scaled)
    block.register_plugin(f"post_{name}", plugin)
    assert error(block(x), expected(state, x, {}, {name: scaled})) < TOLERANCE
    assert len(plugin.seen) == 1


def test_the_example_of_a_rotary_embedding_of_ones_own(x: torch.Tensor) -> None:
    class MyPlugin(atb.Plugin):
        def preprocess(self, inputs: Any) -> Any:
            return self.custom_rope(inputs)

        def postprocess(self, outputs: Any) -> Any:
            return self.custom_activation(outputs)

        def custom_rope(self, inputs: Any) -> Any:
            q, k, v = inputs
            assert q.shape == (BATCH, HEADS, TOKENS, HIDDEN // HEADS)
            return rotated(q, self.context.positions), rotated(k, self.context.positions), v

        def custom_activation(self, outputs: Any) -> Any:
            return torch.relu(outputs)

    block, with_rope = attention_block(), attention_block(rope=True)
    state = ready(block, x)
    ready(with_rope, x)
    block.register_plugin("pre_attention", MyPlugin())
    with_rope.register_plugin("post_attention", Post(torch.relu))
    key, value, residual = x.clone(), x.clone(), x.clone()
    positions = torch.arange(TOKENS)

    def rope(values: Any) -> Any:
        return rotated(values[0], positions), rotated(values[1], positions), values[2]

    want = expected(state, x, {"attn": rope}, {"attn": torch.relu})
    assert error(block(x), want) < TOLERANCE
    assert error(block(x, key, value, residual), want) < TOLERANCE
    assert error(with_rope(x), want) < TOLERANCE
    assert "flash_attention" in str(block.compiled)  # attention itself is still one operator
    far = torch.arange(TOKENS) * 3 + 5
    block(x, positions=far)
    assert error(block(x, positions=far), with_rope(x, positions=far)) < TOLERANCE


def test_attention_with_its_own_rope_and_fewer_key_heads_gives_what_the_cache_holds(x: torch.Tensor) -> None:
    block = atb.GraphOp(
        [
            atb.Linear("p", out_features=(4 + 2 * 2) * 8),
            atb.FlashAttention("attn", num_heads=4, num_kv_heads=2, rope=100.0, causal=True),
        ]
    )
    state = ready(block, x)
    plugin = Calls()
    block.register_plugin("pre_attn", plugin)
    output = block(x)
    q, k, v = plugin.seen[0]
    parts = linear(state, "p", x).split((32, 16, 16), -1)
    want = [part.reshape(BATCH, TOKENS, -1, 8).transpose(1, 2) for part in parts]
    for i, actual in enumerate((q, k)):
        assert error(actual, rotated(want[i], torch.arange(TOKENS), 100.0)) < TOLERANCE
    assert error(v, want[2]) < TOLERANCE
    repeated = attention(*parts, 4, 2, causal=True, rotate=lambda t: rotated(t, torch.arange(TOKENS), 100.0))
    assert error(output, repeated) < TOLERANCE


def test_several_run_in_order_of_registration_under_name_and_kind(x: torch.Tensor) -> None:
    block = attention_block()
    state = ready(block, x)
    order: list[str] = []

    def noted(label: str, function: Hook) -> Hook:
        def hook(values: Any) -> Any:
            order.append(label)
            return function(values)

        return hook

    block.register_plugin("pre_attention", Calls(noted("a", scaled), noted("A", lambda y: y + 1)))
    block.register_plugin("post_attn", Post(noted("B", lambda y: y * 2)))
    block.register_plugin("pre_attn", Calls(noted("c", lambda t: (t[1], t[0], t[2])), noted("C", torch.tanh)))

    def before(values: Any) -> Any:
        q, k, v = scaled(values)
        return k, q, v

    want = expected(state, x, {"attn": before}, {"attn": lambda y: torch.tanh((y + 1) * 2)})
    assert error(block(x), want) < TOLERANCE
    assert order == ["a", "c", "A", "B", "C"]


def test_a_kind_means_all_its_items_and_a_name_comes_first(x: torch.Tensor) -> None:
    block = atb.GraphOp([atb.Linear("norm", out_features=HIDDEN), atb.LayerNorm(), atb.Linear(out_features=HIDDEN)])
    state = ready(block, x)
    plugin = Calls()
    handle = block.register_plugin("pre_linear", plugin)
    block(x)
    assert len(plugin.seen) == 4
    handle.remove()
    block.register_plugin("pre_norm", plugin)
    plugin.seen.clear()
    block(x)
    assert len(plugin.seen) == 2
    assert torch.equal(plugin.seen[0], x)
    assert error(plugin.seen[1], linear(state, "norm", x)) < TOLERANCE


def test_removed_and_disabled_ones_leave_no_trace(x: torch.Tensor) -> None:
    block = attention_block()
    ready(block, x)
    plain, text = block(x), str(block.compiled)
    plugin = Calls(scaled)
    handle = block.register_plugin("pre_attention", plugin)
    other = block.register_plugin("post_output", Post(lambda y: y + 1))
    changed = block(x)
    assert str(block.compiled).count("external") == 3
    plugin.enabled = False
    assert torch.equal(block(x), plain + 1)
    plugin.enabled = True
    assert torch.equal(block(x), changed)
    handle.remove()
    handle.remove()
    other.remove()
    assert torch.equal(block(x), plain)
    assert str(block.compiled) == text


def test_streams_of_their_own_are_three_inputs(x: torch.Tensor) -> None:
    block = attention_block()
    ready(block, x)
    key, value = torch.randn(2, BATCH, TOKENS, HIDDEN).unbind(0)
    plugin = Calls()
    block.register_plugin("pre_norm", plugin)
    plain = block(x, key, value)
    for actual, stream in zip(plugin.seen[0], (x, key, value), strict=True):
        assert torch.equal(actual, stream)
    assert len(plugin.seen[1]) == 3
    plugin.before = lambda streams: (streams[0], streams[2], streams[1])
    swapped = block(x, key, value)
    plugin.before = lambda streams: streams
    assert torch.equal(swapped, block(x, value, key))
    assert not torch.equal(swapped, plain)


def test_several_values_go_as_a_tuple(x: torch.Tensor) -> None:
    block = atb.GraphOp(
        [atb.Split(sizes=[8, 24]), atb.Custom("swap", lambda a, b: (b, a), out_features=[24, 8]), atb.Concat()]
    )
    block.register_plugin("post_swap", Post(lambda values: (values[0] * 2, values[1] + 1)))
    block.register_plugin("pre_concat", Calls(lambda values: [values[0], -values[1]]))
    assert torch.equal(block(x), torch.cat((x[..., 8:] * 2, -(x[..., :8] + 1)), -1))


def test_token_ids_can_be_replaced() -> None:
    block = atb.GraphOp([atb.Embedding("tokens", num_embeddings=10, embedding_dim=4)])
    ids = torch.arange(6).reshape(2, 3)
    block(ids)
    block.register_plugin("pre_embedding", Calls(lambda given: 9 - given))
    assert torch.equal(block(ids), block.get_parameter("tokens.weight").detach()[9 - ids])


# --- Context


def test_the_context_says_where_and_for_what(x: torch.Tensor) -> None:
    block = attention_block()
    plugin = Calls()
    block.register_plugin("pre_attention", plugin)
    block(x)
    assert plugin.contexts[0].point == "pre_attention"
    assert plugin.contexts[0].layer is None
    assert plugin.contexts[0].positions.tolist() == list(range(TOKENS))
    assert plugin.contexts[0].lengths.tolist() == [TOKENS] * BATCH
    block.layer = 7
    mask = torch.arange(TOKENS) < torch.tensor([[TOKENS], [4]])
    positions = torch.arange(TOKENS) + torch.tensor([[5], [9]])
    block(x, attention_mask=mask, positions=positions)
    assert plugin.contexts[-1].layer == 7
    assert torch.equal(plugin.contexts[-1].positions, positions)
    assert plugin.contexts[-1].lengths.tolist() == [TOKENS, 4]
    with pytest.raises(core.FailedPreconditionError, match="only while preprocess or postprocess run"):
        _ = plugin.context


def test_one_plugin_in_several_blocks_knows_which_it_is_in(x: torch.Tensor) -> None:
    layers: list[int | None] = []

    class Layers(atb.Plugin):
        def preprocess(self, inputs: Any) -> Any:
            layers.append(self.context.layer)
            return inputs

    plugin, blocks = Layers(), [attention_block() for _ in range(3)]
    for layer, block in enumerate(blocks):
        block.layer = layer
        block.register_plugin("pre_norm", plugin)
    inside = Calls(lambda values: blocks[1](values))  # a block is called by a plugin of another one
    blocks[0].register_plugin("pre_out_proj", inside)
    for block in blocks:
        block(x)
    assert layers == [0, 1, 1, 2]
    assert inside.contexts[0].layer == inside.contexts[1].layer == 0


# --- Errors


class Weird(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(a, b)


@pytest.mark.parametrize(
    ("mistake", "kind", "text"),
    [
        (ValueError("no such adapter"), ValueError, r"^\[plugin\] pre_attention: no such adapter$"),
        (AssertionError(), AssertionError, r"^\[plugin\] pre_attention$"),
        (KeyError("x"), KeyError, r"\[plugin\] pre_attention: x"),
        (Weird(1, 2), atb.PluginError, r"^\[plugin\] pre_attention: Weird: \(1, 2\)$"),
    ],
)
def test_an_exception_arrives_with_the_name_of_the_point(
    mistake: Exception, kind: type[Exception], text: str, x: torch.Tensor
) -> None:
    block = attention_block()
    ready(block, x)
    plain = block(x)

    class Failing(atb.Plugin):
        def preprocess(self, inputs: Any) -> Any:
            raise mistake

    plugin = Failing()
    block.register_plugin("pre_attention", plugin)
    for _ in range(2):
        with pytest.raises(kind, match=text) as caught:
            block(x)
    assert caught.value is mistake or caught.value.__cause__ is mistake
    plugin.enabled = False
    assert torch.equal(block(x), plain)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (None, r"preprocess returns nothing, expected float32 \[2, 4, 11, 8\], float32"),
        (lambda t: t[0], r"returns 1 results, expected float32 \[2, 4, 11, 8\], float32"),
        (lambda t: (t[0], t[1], t[2][:, :1]), r"returns .*float32 \[2, 1, 11, 8\], expected"),
        (lambda t: (t[0].double(), t[1], t[2]), r"returns float64 \[2, 4, 11, 8\]"),
        (lambda t: (t[0], t[1], "v"), r"returns .*, str, expected"),
    ],
)
def test_results_that_do_not_fit_are_named(result: Any, text: str, x: torch.Tensor) -> None:
    block = attention_block()
    block.register_plugin("pre_attn", Calls(result or (lambda t: None)))
    with pytest.raises(core.InvalidArgumentError, match=r"^\[plugin\] pre_attn: preprocess returns.*"):
        block(x)
    with pytest.raises(core.InvalidArgumentError, match=text):
        block(x)


def test_a_plugin_that_calls_its_own_block_is_told(x: torch.Tensor) -> None:
    block = attention_block()
    block.register_plugin("pre_attn", Calls(lambda values: block(x)))
    with pytest.raises(
        core.FailedPreconditionError, match=r"\[plugin\] pre_attn: .*called by a kernel of its own call"
    ):
        block(x)


def test_registrations_that_could_never_run_are_refused() -> None:
    block = attention_block()

    class Before(atb.Plugin):
        def preprocess(self, inputs: Any) -> Any:
            return inputs

    for point in ("attention", "pre_conv", "pre_", ""):
        with pytest.raises(
            core.InvalidArgumentError, match=r"is no point of this block; points are pre_query, post_query"
        ):
            block.register_plugin(point, Before())
    with pytest.raises(core.InvalidArgumentError, match=r"post_attn: Before would do nothing; it needs postprocess"):
        block.register_plugin("post_attn", Before())
    with pytest.raises(core.InvalidArgumentError, match=r"pre_attn: Plugin would do nothing"):
        block.register_plugin("pre_attn", atb.Plugin())
    for wrong in (Before, len, None):
        with pytest.raises(core.InvalidArgumentError, match=r"is no plugin; derive from atb_torch.Plugin"):
            block.register_plugin("pre_attn", wrong)  # type: ignore[arg-type]


# --- Memory, gradients, dtypes


def test_tensors_are_the_plugins_own(x: torch.Tensor) -> None:
    block = attention_block()
    state = ready(block, x)
    given = x.clone()

    class InPlace(atb.Plugin):
        def preprocess(self, inputs: Any) -> Any:
            return inputs.mul_(2)

        def postprocess(self, outputs: Any) -> Any:
            self.kept = outputs
            return outputs

    plugin = InPlace()
    block.register_plugin("pre_query", plugin)
    output = block(given)
    kept = plugin.kept.clone()
    assert torch.equal(given, x)
    assert error(output, expected(state, x, {"query": lambda t: t * 2}, {})) < TOLERANCE
    first = plugin.kept
    block(given + 1)
    assert torch.equal(first, kept)


def test_a_module_with_parameters_can_be_a_plugin(x: torch.Tensor) -> None:
    class Scale(nn.Module, atb.Plugin):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((HIDDEN,), 3.0))

        def postprocess(self, outputs: Any) -> Any:
            return outputs * self.weight

    block = attention_block()
    state = ready(block, x)
    plugin = Scale()
    block.register_plugin("pre_attn", plugin)
    assert error(block(x), expected(state, x, {}, {"attn": lambda y: y * 3})) < TOLERANCE
    assert sorted(block.state_dict()) == sorted(state)
    with torch.no_grad():
        plugin.weight.fill_(0.5)
    assert error(block(x), expected(state, x, {}, {"attn": lambda y: y * 0.5})) < TOLERANCE
    block.register_plugin("post_output", Post(lambda y: nn.Parameter(y)))
    assert not block(x).requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_arrive_as_halves(dtype: torch.dtype, x: torch.Tensor) -> None:
    block = attention_block()
    ready(block, x)
    block = block.to(dtype)
    plugin = Calls(scaled, torch.tanh)
    block.register_plugin("pre_attn", plugin)
    output = block(x.to(dtype))
    assert {t.dtype for t in (*plugin.seen[0], plugin.seen[1], output)} == {dtype}
    state = {name: tensor.double() for name, tensor in block.state_dict().items()}
    want = expected(state, x.to(dtype).double(), {"attn": scaled}, {"attn": torch.tanh})
    assert rms_error(output, want) < (2e-3 if dtype is torch.float16 else 1.6e-2)


@pytest.mark.parametrize("shape", [(1, 1), (3, 40)])
def test_any_sizes(shape: tuple[int, int], x: torch.Tensor) -> None:
    block = attention_block()
    state = ready(block, x)
    block.register_plugin("pre_attn", Calls(scaled))
    other = torch.randn(*shape, HIDDEN)
    assert error(block(other), expected(state, other, {"attn": scaled}, {})) < TOLERANCE
    assert error(block(other[0]), expected(state, other[:1], {"attn": scaled}, {})[0]) < TOLERANCE


# --- Blocks in blocks, copies, threads


def test_plugins_of_a_nested_block_run_inside_it_only(x: torch.Tensor) -> None:
    inner = atb.GraphOp([atb.Linear("up", out_features=48), atb.ReLU(), atb.Linear(out_features=HIDDEN)], name="inner")
    outer = atb.GraphOp([atb.Linear("up", out_features=HIDDEN), inner, atb.Linear(out_features=HIDDEN)])
    ready(outer, x)
    order: list[str] = []

    def note(label: str) -> atb.Plugin:
        return Post(lambda y: (order.append(label), y)[1])

    inner.register_plugin("post_linear", note("inner linear"))
    outer.register_plugin("post_linear", note("linear"))
    inner.register_plugin("post_up", note("inner up"))
    outer.register_plugin("post_inner.up", note("inner.up"))
    outer(x)
    up, down = ["inner linear", "linear", "inner up", "inner.up"], ["inner linear", "linear"]
    assert order == ["linear", *up, *down, "linear"]
    order.clear()
    inner(x)
    assert order == ["inner linear", "inner up", "inner linear"]


class Doubled(atb.Plugin):
    def postprocess(self, outputs: Any) -> Any:
        return outputs * 2


def test_copies_have_plugins_of_their_own(x: torch.Tensor) -> None:
    block = attention_block()
    ready(block, x)
    plain = block(x)
    plugin = Doubled()
    handle = block.register_plugin("post_output", plugin)
    twin = copy.deepcopy(block)
    saved = io.BytesIO()
    torch.save(block, saved)
    saved.seek(0)
    loaded = torch.load(saved, weights_only=False)
    handle.remove()
    assert torch.equal(block(x), plain)
    assert torch.equal(twin(x), plain * 2)
    assert torch.equal(loaded(x), plain * 2)


def test_threads_see_their_own_context(x: torch.Tensor) -> None:
    block = attention_block()
    ready(block, x)
    wrong: list[int] = []

    class Check(atb.Plugin):
        def preprocess(self, inputs: Any) -> Any:
            if self.context.positions.shape[0] != inputs[0].shape[2]:
                wrong.append(inputs[0].shape[2])
            return inputs

    block.register_plugin("pre_attention", Check())
    threads = [
        threading.Thread(target=lambda n=n: [block(torch.ones(1, n, HIDDEN)) for _ in range(20)]) for n in range(1, 5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_graph_shows_where_the_launch_is_split(x: torch.Tensor) -> None:
    block = attention_block()
    block.register_plugin("pre_attention", Calls())
    block(x)
    text = str(block.compiled)
    assert text.count('target="pre_attention"') == 2
    assert "attn.preprocess" in text and "attn.postprocess" in text

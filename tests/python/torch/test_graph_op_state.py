# SPDX-License-Identifier: Apache-2.0
"""GraphOp as a torch module: states, copies, changed parameters, and the errors of wrong lists and calls."""

from __future__ import annotations

import copy
import io
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import atb as core  # noqa: E402
import atb_torch as atb  # noqa: E402
from block_reference import error, layer_norm, linear, randomize  # noqa: E402
from torch.nn import functional as F  # noqa: E402

H = 16


def block_of(*, act: Any = None) -> atb.GraphOp:
    return atb.GraphOp(
        [
            atb.LayerNorm(),
            atb.Linear("up", out_features=24),
            act or atb.GELU(),
            atb.Linear("down", out_features=H, bias=False),
            atb.ResidualAdd(),
        ]
    )


def expected(state: Any, x: torch.Tensor) -> torch.Tensor:
    return x + linear(state, "down", F.gelu(linear(state, "up", layer_norm(state, "0", x))))


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 7, H, generator=torch.Generator().manual_seed(1))


def made(x: torch.Tensor) -> atb.GraphOp:
    block = block_of()
    block(x)
    randomize(block)
    return block


# --- States


def test_a_state_moves_through_a_file(x: torch.Tensor) -> None:
    block, file = made(x), io.BytesIO()
    torch.save(block.state_dict(), file)
    file.seek(0)
    other = block_of()
    assert other.load_state_dict(torch.load(file)).missing_keys == []
    assert [tuple(p.shape) for p in other.parameters()] == [tuple(p.shape) for p in block.parameters()]
    assert torch.equal(other(x), block(x))


def test_weights_of_plain_modules_fit_both_ways(x: torch.Tensor) -> None:
    plain = torch.nn.ModuleDict(
        {"0": torch.nn.LayerNorm(H), "up": torch.nn.Linear(H, 24), "down": torch.nn.Linear(24, H, bias=False)}
    )
    block = block_of()
    block.load_state_dict(plain.state_dict())
    assert error(block(x), x + plain["down"](F.gelu(plain["up"](plain["0"](x)))).detach()) < 1e-4
    plain.load_state_dict(block.state_dict())


def test_the_first_values_are_those_of_torch(x: torch.Tensor) -> None:
    torch.manual_seed(0)
    block = atb.GraphOp([atb.LayerNorm("n"), atb.Linear("l", out_features=4000), atb.Softmax()])
    block(x)
    state = block.state_dict()
    assert torch.equal(state["n.weight"], torch.ones(H))
    assert torch.equal(state["n.bias"], torch.zeros(H))
    bound = H**-0.5
    assert 0.99 * bound < state["l.weight"].abs().max() <= bound
    assert abs(state["l.weight"].std() - bound / 3**0.5) < 0.02 * bound
    assert 0.99 * bound < state["l.bias"].abs().max() <= bound


def test_strict_loading(x: torch.Tensor) -> None:
    state = made(x).state_dict()
    missing = {name: tensor for name, tensor in state.items() if name != "up.bias"}
    with pytest.raises(RuntimeError, match=r'Missing key.*"up.bias"'):
        block_of().load_state_dict(missing)
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"other"'):
        block_of().load_state_dict({**state, "other": torch.zeros(1)})
    block = block_of()
    assert block.load_state_dict(missing, strict=False).missing_keys == ["up.bias"]
    assert block(x).shape == x.shape


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("down.weight", (H, 23), r"item down: its weight is \[16, 23\] in the state, expected \[16, 24\]"),
        ("up.bias", (25,), r"item up: its bias is \[25\] in the state, expected \[24\]"),
        ("0.bias", (H + 1,), r"item 0: its bias is \[17\] in the state, expected \[16\]"),
    ],
)
def test_a_state_that_contradicts_itself(name: str, shape: tuple[int, ...], message: str, x: torch.Tensor) -> None:
    state = made(x).state_dict()
    fresh = block_of()
    with pytest.raises(core.InvalidArgumentError, match=message):
        fresh.load_state_dict({**state, name: torch.zeros(shape)})
    fresh.load_state_dict(state)  # the failed one left nothing behind
    with pytest.raises(RuntimeError, match=f"size mismatch for {name}"):
        fresh.load_state_dict({**state, name: torch.zeros(shape)})


def test_a_state_that_the_call_contradicts(x: torch.Tensor) -> None:
    block = made(x)
    with pytest.raises(
        core.InvalidArgumentError, match=r"\[layer_norm\] 0: its weight is \[16\], but this call needs \[20\]"
    ):
        atb_call = torch.zeros(1, 3, 20)
        block(atb_call, residual=torch.zeros(1, 3, H))
    assert block(x).shape == x.shape


def test_a_width_that_no_parameter_has() -> None:
    def make() -> atb.GraphOp:
        return atb.GraphOp([atb.Branch([atb.SiLU()], [atb.ReLU()]), atb.Concat(), atb.Linear("l", out_features=3)])

    x = torch.randn(1, 4, 6)
    block, other = make(), make()
    block(x)
    other.load_state_dict(block.state_dict())
    assert torch.equal(other(x), block(x))


def test_states_before_the_first_call(x: torch.Tensor) -> None:
    fresh = block_of()
    block_of().load_state_dict(fresh.state_dict())
    assert fresh.half()(x.half()).dtype == torch.float16
    assert block_of().bfloat16()(x.bfloat16()).dtype == torch.bfloat16
    moved = block_of().to("cpu", torch.float16)
    moved.load_state_dict(made(x).state_dict())
    assert {p.dtype for p in moved.parameters()} == {torch.float16}


# --- Copies


def test_copies_are_apart(x: torch.Tensor) -> None:
    block = made(x)
    before = block(x)
    twin = copy.deepcopy(block)
    assert torch.equal(twin(x), before)
    with torch.no_grad():
        twin.get_parameter("up.weight").mul_(2)
    assert torch.equal(block(x), before)
    assert error(twin(x), before) > 0.01
    assert torch.equal(copy.deepcopy(block_of()).load_state_dict(block.state_dict()) and block(x), before)


def test_a_whole_module_is_saved(x: torch.Tensor) -> None:
    block, file = made(x), io.BytesIO()
    torch.save(block, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x), block(x))


# --- Changes


def test_changed_parameters_are_packed_again(x: torch.Tensor) -> None:
    block = made(x)
    block(x), block(x, residual=x.clone())

    def check() -> None:
        state = {name: tensor.clone() for name, tensor in block.state_dict().items()}
        assert error(block(x), expected(state, x)) < 1e-4
        assert error(block(x, residual=x.clone()), expected(state, x)) < 1e-4

    check()
    with torch.no_grad():
        block.get_parameter("up.weight").add_(1)
    check()
    block.get_parameter("down.weight").data = torch.randn(H, 24)
    check()
    block.load_state_dict(made(x).state_dict())
    check()
    program = block.compiled
    check()
    assert block.compiled is program


def test_inference_mode(x: torch.Tensor) -> None:
    block = made(x)
    before = block(x)
    with torch.inference_mode():
        assert torch.equal(block(x), before)
        assert torch.equal(copy.deepcopy(block)(x.clone()), before)


def test_threads_share_a_block(x: torch.Tensor) -> None:
    block = made(x)
    before, results = block(x), []
    workers = [threading.Thread(target=lambda: results.append(block(x))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 4
    assert all(torch.equal(result, before) for result in results)


def test_any_strides(x: torch.Tensor) -> None:
    block = made(x)
    wide = torch.stack((x, x), -1)[..., 0]
    assert torch.equal(block(wide), block(x))
    assert torch.equal(block(x.transpose(0, 1).contiguous().transpose(0, 1)), block(x))


# --- What it became


def test_graph_and_report(x: torch.Tensor) -> None:
    block = block_of()
    with pytest.raises(core.FailedPreconditionError, match="call the block once"):
        _ = block.graph
    block(x)
    plain = str(block.graph)
    assert "const @up.weight : f32[24, 16]" in plain
    assert 'scope="up"' in plain
    assert "return %" in plain
    assert "AddNorm" in str(block.report()) or "kernels" in str(block.report())
    assert "down" in repr(block)


# --- Errors


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "needs one item or more"),
        ([atb.Linear("a", out_features=2), atb.Linear("a", out_features=2)], r"\[linear\] a: two items have this name"),
        ([atb.Linear("a.b", out_features=2)], "without dots"),
        ([atb.Linear("7", out_features=2)], "no number"),
        ([atb.Linear("forward", out_features=2)], "cannot be named 'forward'"),
        ([torch.nn.Linear(2, 2)], "a Linear is no item"),
        ([atb.Item("linear", "a", {"out_features": "x"})], r"attribute out_features = x is not of its kind, int"),
        ([atb.Custom("a", "tanh", eps=3)], "has no attribute eps"),
        ([atb.Branch([atb.SiLU()])], r"\[branch\] 0: holds 1 lists"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_lists(items: list[Any], message: str) -> None:
    with pytest.raises(core.InvalidArgumentError, match=message):
        atb.GraphOp(items)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([atb.Linear("a", out_features=0)], r"\[linear\] a: out_features 0 must be 1 or more"),
        (
            [atb.Linear("p", out_features=50), atb.FlashAttention("a", num_heads=4)],
            "gives 50 features; expected .* a multiple of 12",
        ),
        ([atb.FlashAttention("a", num_heads=3)], "reads 16 features without a projection"),
        (
            [atb.Linear(out_features=48), atb.FlashAttention("a", num_heads=4, num_kv_heads=3)],
            "must be a multiple of num_kv_heads 3",
        ),
        ([atb.Linear(out_features=48), atb.FlashAttention("a", num_heads=4, window=2)], "window 2 needs causal=True"),
        (
            [atb.Linear("a", out_features=8), atb.ResidualAdd("r")],
            r"\[residual_add\] r: adds \"input\", .*16\], to what .* gives, .*8\]; expected one shape",
        ),
        (
            [atb.Branch([atb.SiLU()], []), atb.SiLU("s")],
            r"\[silu\] s: is given 2 values by the item before; it takes 1",
        ),
        ([atb.Split("s", sections=2)], "the last item gives 2 values"),
        ([atb.Split("s", sections=3), atb.Add()], "16 features cannot be split into 3 equal parts"),
        ([atb.Embedding("e", num_embeddings=3, embedding_dim=3)], r"\[embedding\] e: reads f32.*expected token ids"),
        ([atb.RotaryEmbedding("r")], "no attention follows"),
        ([atb.GELU("g", approximate="erf")], "approximate"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_lists_that_do_not_fit_the_call(items: list[Any], message: str, x: torch.Tensor) -> None:
    with pytest.raises(core.InvalidArgumentError, match=message):
        atb.GraphOp(items)(x)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "missing a required argument: 'x'"),
        ((1,), {}, "x is a int, expected a tensor"),
        ((torch.zeros(1, 2, 3, 4),), {}, r"x is \[1, 2, 3, 4\]; expected \[batch, tokens, features\]"),
        ((torch.zeros(0, 2, H),), {}, r"x is \[0, 2, 16\]"),
        ((torch.zeros(1, 2, H),), {"mask": 1}, "unexpected keyword argument 'mask'"),
        ((torch.zeros(1, 2, H),), {"kv_cache": 1}, "no item has kv_cache=True"),
        ((torch.zeros(1, 2, H),), {"residual": torch.zeros(1, 3, H)}, r"residual is \[1, 3, 16\]; expected \[1, 2,"),
        ((torch.zeros(1, 2, H), torch.zeros(2, 2, H)), {}, r"key is \[2, 2, 16\]; expected 1 sequences"),
        ((torch.zeros(1, 2, H),), {"positions": torch.zeros(3)}, r"positions is torch.float32 \[3\]"),
        (
            (torch.zeros(1, 2, H),),
            {"attention_mask": torch.ones(3, 4)},
            r"attention_mask is \[3, 4\]; expected \[1, 2\]",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_call_shows_the_signature(args: Any, kwargs: Any, message: str) -> None:
    signature = (
        r"block\(x, key=None, value=None, residual=None, \*, kv_cache=None, attention_mask=None, positions=None\)"
    )
    with pytest.raises(core.InvalidArgumentError, match=message + ".*" + signature):
        block_of()(*args, **kwargs)


def test_inputs_that_nobody_reads(x: torch.Tensor) -> None:
    for name in ("key", "attention_mask"):
        given = torch.ones(2, 7) if name == "attention_mask" else x.clone()
        with pytest.raises(core.InvalidArgumentError, match=f"{name} is given, but no item reads it"):
            atb.GraphOp([atb.SiLU()])(x, **{name: given})
    with pytest.raises(core.InvalidArgumentError, match="residual is given, but no item reads it"):
        atb.GraphOp([atb.SiLU()])(x, residual=x)


def test_what_is_refused(x: torch.Tensor) -> None:
    live = atb.GraphOp([atb.Dropout(p=0.1)])
    with pytest.raises(core.UnsupportedError, match=r"Dropout is live \(p = 0.1\); call .eval"):
        live(x)
    assert torch.equal(live.eval()(x), x)
    nested = atb.GraphOp([atb.GraphOp([atb.Dropout("drop", p=0.1)])])
    with pytest.raises(core.UnsupportedError, match="Dropout drop is live"):
        nested(x)
    with pytest.raises(core.UnsupportedError, match=r"requires gradients.*no_grad"):
        made(x)(x.clone().requires_grad_())
    with torch.no_grad():
        made(x)(x.clone().requires_grad_())
    with pytest.raises(core.UnsupportedError, match="float64"):
        block_of()(x.double())
    with pytest.raises(core.UnsupportedError, match="parameters are of several dtypes: f16, f32"):
        mixed = made(x)
        mixed.get_parameter("up.weight").data = torch.zeros(24, H, dtype=torch.float16)
        mixed(x)


def test_a_block_prints_what_is_inside_of_its_items() -> None:
    attention = {"num_heads": 2, "causal": True}
    text = repr(atb.GraphOp([atb.FlashAttention("a", rope={"theta": 5e5, "dim": 4}, **attention)]))
    assert "flash_attention('a', rope=rotary_embedding(theta=500000.0, dim=4" in text
    assert "rope" not in repr(atb.GraphOp([atb.FlashAttention(**attention)]))
    nested = atb.GraphOp([atb.ReLU()], name="inner")
    text = repr(atb.GraphOp([atb.Branch([atb.SiLU()], [nested], []), atb.Add()]))
    assert "branch([silu()], [GraphOp(inner)], [])" in text


def test_a_wrong_dtype_is_answered_with_one_signature() -> None:
    block = atb.GraphOp([atb.Linear(out_features=4)])
    x = torch.randn(1, 2, 4)
    with torch.no_grad():
        block(x)
        with pytest.raises(core.InvalidArgumentError, match="x is f16, the block f32") as raised:
            block(x.half())
    assert str(raised.value).count("the call is") == 1


# --- Tensors that are only marked as negated


def marked(x: torch.Tensor) -> torch.Tensor:
    """-x, whose memory holds x."""
    return torch.complex(x, x).conj().imag


class Negating(atb.Plugin):
    def preprocess(self, inputs: Any) -> Any:
        return marked(inputs)

    def postprocess(self, outputs: Any) -> Any:
        return marked(outputs)


def test_what_kernels_in_python_return_may_be_marked_as_negated(x: torch.Tensor) -> None:
    assert marked(x).is_neg()
    assert torch.equal(atb.GraphOp([atb.Custom(marked)])(x), -x)
    swapped = atb.GraphOp([atb.Split(sections=2), atb.Custom(lambda a, b: (marked(b), a + 0), out_features=[8, 8])])
    swapped = atb.GraphOp([*swapped.items, atb.Concat()])
    assert torch.equal(swapped(x), torch.cat([-x[..., 8:], x[..., :8]], dim=-1))
    block = atb.GraphOp([atb.ReLU("act")])
    block.register_plugin("pre_act", Negating())
    assert torch.equal(block(x), -torch.relu(-x))


def test_parameters_and_inputs_may_be_marked_as_negated(x: torch.Tensor) -> None:
    block = atb.GraphOp([atb.Linear("l", out_features=4, bias=False)])
    block(x)
    weight = block.get_parameter("l.weight").detach().clone()
    block.get_submodule("l").weight = torch.nn.Parameter(marked(weight), requires_grad=False)
    assert error(block(marked(x)), x @ weight.T) < 1e-5


def test_kernels_of_plain_graphs_and_constants_too(x: torch.Tensor) -> None:
    graph = core.Graph.parse("graph @g(%x: f32[2, 7, 16]) {\n  %y = relu(%x) : f32[2, 7, 16]\n  return %y\n}")
    assert torch.equal(torch.from_dlpack(graph.compile(threads=1)(marked(x))[0]), torch.relu(-x))

    class Shift(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("shift", marked(torch.arange(16.0)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.shift

    net = Shift().eval()
    with torch.no_grad():
        assert torch.equal(atb.compile(net, threads=1)(x), x - torch.arange(16.0))

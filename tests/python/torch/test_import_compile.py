# SPDX-License-Identifier: Apache-2.0
"""`atb_torch.compile`: signatures, sizes, what is refused, what is kept whole, and what is freed."""

from __future__ import annotations

import inspect
from typing import Any

import atb
import atb_torch
import families
import pytest
import torch
import transformers

pytestmark = pytest.mark.real


class Block(torch.nn.Module):
    """A block with an optional argument, a flag and outputs by name."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None, *, double: bool = False) -> dict[str, Any]:
        hidden = torch.nn.functional.gelu(self.up(self.norm(x)))
        y = x + self.down(hidden)
        if scale is not None:
            y = y * scale
        return {"y": y * 2 if double else y, "hidden": hidden, "nothing": None, "number": 3}


def same(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(actual) == list(expected)
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(actual[name], value, rtol=1e-5, atol=1e-5)
        else:
            assert actual[name] == value


@pytest.fixture
def block() -> Block:
    torch.manual_seed(0)
    return Block().eval()


@torch.no_grad()
def test_forms_of_calls(block: Block) -> None:
    fast = atb_torch.compile(block, threads=1)
    x, scale = torch.randn(2, 5, 8), torch.randn(8)
    same(fast(x), block(x))
    same(fast(x=x), block(x))
    same(fast(x, scale), block(x, scale))
    same(fast(x, scale=scale, double=True), block(x, scale, double=True))
    assert inspect.signature(fast.forward) == inspect.signature(block.forward)
    with pytest.raises(TypeError):
        fast(x, unknown=1)


@torch.no_grad()
@pytest.mark.parametrize("shape", [(2, 5, 8), (1, 5, 8), (3, 1, 8), (1, 1, 8), (0, 5, 8), (2, 0, 8), (4, 17, 8)])
def test_sizes(block: Block, shape: tuple[int, ...]) -> None:
    fast = atb_torch.compile(block, torch.randn(2, 3, 8), threads=1)
    x = torch.randn(shape)
    same(fast(x), block(x))


@torch.no_grad()
def test_strides_and_later_changes(block: Block) -> None:
    fast = atb_torch.compile(block, threads=1)
    x = torch.randn(8, 5, 2).permute(2, 1, 0)
    expected = block(x)["y"]
    out = fast(x)["y"]
    x.zero_()
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    same(fast(x), block(x))
    x = torch.randn(1, 5, 8).expand(3, 5, 8)
    same(fast(x), block(x))


class ByOne(torch.nn.Module):
    """Decides by sizes that are 1, which leaves no trace in an exported program."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 1:
            x = x * 3
        return x.squeeze(1) if x.shape[1] == 1 else x + 1


@torch.no_grad()
def test_size_of_one_is_no_other_size() -> None:
    model = ByOne().eval()
    fast = atb_torch.compile(model, torch.randn(2, 3, 4), threads=1)
    for shape in ((2, 3, 4), (1, 3, 4), (2, 1, 4), (1, 1, 4), (3, 2, 4)):
        x = torch.randn(shape)
        expected = model(x)
        actual = fast(x)
        assert actual.shape == expected.shape
        torch.testing.assert_close(actual, expected)


class BySize(torch.nn.Module):
    """Another computation for long inputs, which export takes as decided."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 4 else x - 1


@torch.no_grad()
def test_decisions_by_size_are_made_again() -> None:
    model = BySize().eval()
    fast = atb_torch.compile(model, threads=1)
    for length in (3, 9, 4, 5):
        x = torch.randn(length, 2)
        torch.testing.assert_close(fast(x), model(x))
    assert len(fast.variants) == 2


@torch.no_grad()
def test_variable_axis_squeezed() -> None:
    class Squeeze(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.squeeze(0) + 1

    model = Squeeze().eval()
    fast = atb_torch.compile(model, torch.randn(2, 3), threads=1)
    for shape in ((2, 3), (1, 3)):
        x = torch.randn(shape)
        assert fast(x).shape == model(x).shape


def test_refusals(block: Block) -> None:
    fast = atb_torch.compile(block, threads=1)
    with pytest.raises(atb.UnsupportedError, match="requires gradients"):
        fast(torch.randn(2, 5, 8, requires_grad=True))
    with torch.no_grad():
        fast(torch.randn(2, 5, 8, requires_grad=True))
    with pytest.raises(atb.UnsupportedError, match="float64"):
        fast(torch.randn(2, 5, 8, dtype=torch.float64))
    with pytest.raises(atb.UnsupportedError, match="complex64"):
        fast(torch.randn(2, 5, 8, dtype=torch.complex64))
    with pytest.raises(atb.UnsupportedError, match="meta"):
        fast(torch.empty(2, 5, 8, device="meta"))
    with pytest.raises(atb.UnsupportedError, match="no data"):
        atb_torch.compile(Block().to("meta").eval())
    with pytest.raises(atb.UnsupportedError, match="float64"):
        atb_torch.compile(Block().double().eval())
    with pytest.raises(atb.UnsupportedError, match="training mode"):
        atb_torch.compile(Block().train())
    with pytest.raises(atb.UnsupportedError, match="only FX graphs can be optimized"):
        atb_torch.compile(torch.jit.script(torch.nn.Linear(3, 3).eval()))
    with pytest.raises(atb.InvalidArgumentError, match="int is no"):
        atb_torch.compile(3)
    with pytest.raises(atb.FailedPreconditionError, match="nothing is compiled"):
        atb_torch.compile(block).report()


def test_transformers_caches_are_refused() -> None:
    fast = atb_torch.compile(families.model("llama", "sdpa"), threads=1)
    with pytest.raises(atb.UnsupportedError, match="past_key_values"):
        fast(families.tokens(1, 3), past_key_values=object())


@torch.no_grad()
def test_exported_program_and_graph_module(block: Block) -> None:
    x = torch.randn(2, 5, 8)
    program = torch.export.export(block, (x,), strict=False)
    same(atb_torch.compile(program, threads=1)(x), block(x))

    class Small(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.linear(x))

    traced = torch.fx.symbolic_trace(Small().eval())
    torch.testing.assert_close(atb_torch.compile(traced, x, threads=1)(x), traced(x))


def wrapped_function(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.special.bessel_j0(x) * factor


torch.fx.wrap("wrapped_function")


class CallsWrapped(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return wrapped_function(torch.relu(x), 2.0) + 1


def test_wrapped_functions_stay_whole() -> None:
    traced = torch.fx.symbolic_trace(CallsWrapped())
    traced.eval()
    graph = atb_torch.import_module(traced, torch.rand(3, 5))
    whole = [node for node in graph.nodes if node.op == "call_function" and node.target == wrapped_function]
    assert len(whole) == 1
    with pytest.raises(atb.UnsupportedError, match="wrapped_function"):
        atb_torch.compile(traced, torch.rand(3, 5))


def test_layers_and_scopes() -> None:
    graph = atb_torch.import_module(families.model("llama", "sdpa"), families.tokens(2, 7))
    text = str(graph)
    assert 'layer=1, scope="model.layers.1.self_attn.q_proj"' in text
    assert "%input_ids: i64[B, T]" in text
    assert "@model.layers.0.mlp.up_proj.weight : f32[112, 64]" in text


def test_parameters_are_shared_not_copied() -> None:
    linear = torch.nn.Linear(4, 4, bias=False).eval()
    graph = atb_torch.import_module(linear, torch.randn(2, 4))
    with torch.no_grad():
        linear.weight.fill_(1)
        out = torch.from_dlpack(graph.compile(threads=1)(torch.ones(2, 4))[0])
    assert torch.equal(out, torch.full((2, 4), 4.0))


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_no_worse_than_eager(dtype: torch.dtype) -> None:
    reference = families.model("llama", "sdpa").to(dtype).double()
    model = families.model("llama", "sdpa").to(dtype)
    ids = families.tokens(2, 17)
    exact = reference(ids, use_cache=False).logits
    actual, eager = atb_torch.compile(model, threads=1)(ids).logits, model(ids, use_cache=False).logits
    assert actual.dtype == dtype

    def rms(value: torch.Tensor) -> float:
        return float((value.double() - exact).square().mean().sqrt())

    assert rms(actual) <= rms(eager)


@torch.no_grad()
def test_released_parameters() -> None:
    model, twin = families.model("llama", "sdpa"), families.model("llama", "sdpa")
    fast = atb_torch.compile(model, families.tokens(2, 7), release=True, threads=1)
    assert all(parameter.device.type == "meta" for parameter in model.parameters())
    for batch, length in ((2, 7), (1, 5), (3, 1)):
        ids = families.tokens(batch, length)
        assert families.distance(fast(ids).logits, twin(ids, use_cache=False).logits) < 2e-4
    with pytest.raises(atb.UnsupportedError, match="released"):
        fast(families.tokens(2, 7), attention_mask=torch.ones(2, 7, dtype=torch.long))


@pytest.mark.parametrize("kind", ["Bert", "DistilBert", "Roberta"])
def test_encoders_whose_tables_limit_their_length(kind: str) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    if kind == "DistilBert":
        sizes = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(vocab_size=97, max_position_embeddings=40, **sizes)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    fast = atb_torch.compile(model, threads=1)
    mask = torch.ones(2, 9, dtype=torch.int64)
    mask[0, 6:] = 0
    for ids, options in (((2, 9), {}), ((2, 9), {"attention_mask": mask}), ((1, 4), {}), ((1, 33), {})):
        given = torch.randint(3, 97, ids)
        with torch.no_grad():
            torch.testing.assert_close(fast(given, **options)[0], model(given, **options)[0], rtol=1e-4, atol=1e-4)
    with pytest.raises((atb.Error, RuntimeError, IndexError)):
        fast(torch.full((1, 41), 3))


def test_encoders_of_torch_with_padding() -> None:
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2).eval()
    x, padding = torch.randn(2, 9, 32), torch.zeros(2, 9, dtype=torch.bool)
    padding[0, 6:] = True
    with torch.no_grad():
        expected = model(x, None, padding)
        actual = atb_torch.compile(model, threads=1)(x, None, padding)
    torch.testing.assert_close(actual[~padding], expected[~padding], rtol=1e-4, atol=1e-4)
    assert torch.backends.mha.get_fastpath_enabled()

# SPDX-License-Identifier: Apache-2.0
"""Modules of GraphOps compiled whole: one graph, one launch, the numbers of plain PyTorch, and generation."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import atb as core
import atb_torch as atb
import pytest
import torch
from declared_decoder import Model
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore:.*no projection before it")


class PlainBlock(nn.Module):
    """The same mathematics; its parameters have the names of Block's."""

    def __init__(self, hidden_dim: int, num_heads: int, mlp_dim: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        norm, out = nn.LayerNorm(hidden_dim, eps=1e-5), nn.Linear(hidden_dim, hidden_dim)
        self.attention_graph = nn.ModuleDict({"0": norm, "2": out})
        norm, up, down = (
            nn.LayerNorm(hidden_dim, eps=1e-5),
            nn.Linear(hidden_dim, mlp_dim),
            nn.Linear(mlp_dim, hidden_dim),
        )
        self.mlp_graph = nn.ModuleDict({"0": norm, "1": up, "3": down})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        attention, mlp = self.attention_graph, self.mlp_graph
        heads = attention["0"](x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        attended = nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        x = x + attention["2"](attended.transpose(1, 2).flatten(2))
        return x + mlp["3"](nn.functional.silu(mlp["1"](mlp["0"](x))))


class PlainModel(nn.Module):
    def __init__(self, vocab_size: int, hidden_dim: int, num_layers: int, num_heads: int, mlp_dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden_dim)
        self.layers = nn.ModuleList([PlainBlock(hidden_dim, num_heads, mlp_dim) for _ in range(num_layers)])
        self.norm = nn.LayerNorm(hidden_dim)
        self.lm_head = nn.Linear(hidden_dim, vocab_size, bias=False)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))

    def greedy(self, input_ids: torch.Tensor, max_new_tokens: int) -> tuple[torch.Tensor, float]:
        """Greedy tokens, and the smallest margin by which one was chosen."""
        margin = float("inf")
        for _ in range(max_new_tokens):
            best = self(input_ids)[:, -1].detach().topk(2)
            margin = min(margin, float((best.values[:, 0] - best.values[:, 1]).min()))
            input_ids = torch.cat([input_ids, best.indices[:, :1]], dim=1)
        return input_ids, margin


SIZES = {"vocab_size": 97, "hidden_dim": 64, "num_layers": 2, "num_heads": 4, "mlp_dim": 112}


def plain(seed: int = 0) -> PlainModel:
    torch.manual_seed(seed)
    built = PlainModel(**SIZES).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            noise = torch.randn(parameter.shape)
            parameter.copy_(noise * 0.15 if parameter.dim() > 1 else parameter + 0.3 * noise)
    return built


def declared(reference: nn.Module) -> Model:
    built = Model(**SIZES).eval()
    built.load_state_dict(reference.state_dict())
    return built


def tokens(batch: int, length: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(0, 97, (batch, length), generator=torch.Generator().manual_seed(seed))


def distance(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual.double() - expected.double()).abs().max() / expected.double().std())


def test_the_example_of_the_documentation_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reference = plain()
    torch.save(reference.state_dict(), "weights.pth")
    input_ids = tokens(2, 9)

    model = Model(**SIZES)
    model.load_state_dict(torch.load("weights.pth"))
    model = model.half()
    with pytest.warns(UserWarning) if not _said() else _nothing():
        model = atb.compile(model, mode="infer", opt_level=3, enable_prefix_caching=True, enable_speculative=False)
    with torch.no_grad():
        output = model.generate(input_ids, max_new_tokens=100)

    assert output.shape == (2, 109)
    expected, margin = reference.half().double().greedy(input_ids, 100)
    same = (output == expected).all(dim=0).cumprod(0).sum()
    assert same == 109 or margin < 2e-3, f"differs at {same} though every choice has a margin of {margin}"


def _said() -> bool:
    from atb_torch import options

    return any("prefix" in text for text in options._said)


def _nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()


@torch.no_grad()
def test_forward_is_plain_pytorch_and_a_cache_goes_on() -> None:
    reference = plain()
    ids = tokens(3, 20)
    expected = reference(ids)
    fast = atb.compile(declared(reference))
    whole = fast(ids)
    assert distance(whole, expected) < 1e-4
    fast.module.kv_cache.reset()
    chunks = torch.cat([fast(ids[:, begin:end]) for begin, end in ((0, 7), (7, 8), (8, 20))], dim=1)
    assert fast.module.kv_cache.length == 20
    assert torch.equal(chunks, whole)


@torch.no_grad()
def test_compiled_and_eager_share_a_cache() -> None:
    reference = plain()
    ids = tokens(1, 12)
    model = declared(reference)
    fast = atb.compile(model)
    first = model(ids[:, :5])
    then = fast(ids[:, 5:])
    assert model.kv_cache.length == 12
    assert distance(torch.cat([first, then], dim=1), reference(ids)) < 1e-4


@torch.no_grad()
def test_generate_leaves_the_models_cache_alone() -> None:
    reference = plain()
    fast = atb.compile(declared(reference))
    fast(tokens(2, 6))
    before = (fast.module.kv_cache.length, fast.module.kv_cache.blocks_in_use)
    output = fast.generate(tokens(3, 9), max_new_tokens=12)
    assert (fast.module.kv_cache.length, fast.module.kv_cache.blocks_in_use) == before
    expected, margin = reference.greedy(tokens(3, 9), 12)
    assert torch.equal(output, expected) or margin < 1e-4


@torch.no_grad()
def test_a_planted_mistake_is_noticed() -> None:
    reference = plain()
    model = declared(reference)
    model.layers[1].attention_graph.get_parameter("0.bias").add_(0.05)
    assert distance(atb.compile(model)(tokens(2, 9)), reference(tokens(2, 9))) > 1e-3


@torch.no_grad()
def test_the_whole_model_is_one_graph_with_the_fusions() -> None:
    fast = atb.compile(declared(plain()), tokens(2, 9))
    report = fast.report()
    matched = {row["name"]: row["layers_matched"] for row in report["patterns"]}
    assert report["layers"] == 2 and matched["SDPA"] == 2
    assert report["kernels_per_layer"]["after"] < report["kernels_per_layer"]["before"]


class Mixed(nn.Module):
    """Plain PyTorch around a declared block."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(12, 64)
        self.block = atb.GraphOp([atb.RMSNorm("norm"), atb.GatedMLP("mlp", hidden_features=96), atb.ResidualAdd()])
        self.after = nn.Linear(64, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(torch.tanh(self.block(self.before(x))))


@torch.no_grad()
@pytest.mark.parametrize("level", range(4))
def test_a_mix_of_modules_is_one_graph(level: int) -> None:
    torch.manual_seed(0)
    mixed = Mixed().eval()
    x = torch.randn(2, 7, 12)
    expected = mixed(x)
    fast = atb.compile(mixed, opt_level=level)
    assert distance(fast(x), expected) < 1e-4
    assert distance(fast(x[:, :3]), expected[:, :3]) < 1e-4
    assert len(fast.variants) == 1
    assert "graph_op" not in str(fast.graph)


def rotary_block() -> atb.GraphOp:
    attention = atb.FlashAttention("attn", num_heads=4, num_kv_heads=2, causal=True, kv_cache=True, rope=True)
    torch.manual_seed(3)
    norm, projection = atb.RMSNorm("norm"), atb.Linear("qkv", out_features=128)
    made = atb.GraphOp([norm, projection, attention, atb.ResidualAdd()])
    made.eval()(torch.randn(1, 3, 64))
    return made


class Passing(nn.Module):
    """The cache comes as an argument and goes out with the results."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = rotary_block(), rotary_block()

    def forward(self, x: torch.Tensor, kv_cache: Any = None) -> tuple[torch.Tensor, Any]:
        x, kv_cache = self.first(x, kv_cache=kv_cache)
        return self.second(x, kv_cache=kv_cache)


def cache(**changes: Any) -> atb.KVCache:
    return atb.KVCache(**{"num_layers": 2, "num_heads": 2, "head_dim": 16, "max_tokens": 64, **changes})


@torch.no_grad()
def test_a_cache_may_be_an_argument_and_positions_go_on_behind_it() -> None:
    module = Passing().eval()
    fast = atb.compile(module)
    x = torch.randn(2, 11, 64)
    whole, nothing = fast(x)
    assert nothing is None and distance(whole, module(x)[0]) < 1e-4
    mine, theirs = cache(), cache()
    for begin, end in ((0, 4), (4, 5), (5, 11)):
        part, given = fast(x[:, begin:end], kv_cache=mine)
        assert given is mine and mine.length == end
        assert distance(part, whole[:, begin:end]) < 1e-4
        assert distance(part, module(x[:, begin:end], kv_cache=theirs)[0]) < 1e-4
    other = cache()
    assert torch.equal(fast(x[:, :4], kv_cache=other)[0], fast(x[:, :4], kv_cache=cache())[0])
    assert other.length == 4 and mine.length == 11
    assert len(fast.variants) <= 4  # with and without a cache, each at most for one token and for more


@torch.no_grad()
def test_a_call_that_raises_leaves_all_slots_as_they_were() -> None:
    fast = atb.compile(Passing().eval())
    mine = cache(max_tokens=8)
    x = torch.randn(1, 6, 64)
    first = fast(x, kv_cache=mine)[0]
    with pytest.raises(core.Error, match=r"max_tokens|8"):
        fast(x, kv_cache=mine)
    assert mine.length == 6 and [mine._core.length(slot) for slot in range(2)] == [6, 6]
    mine.truncate(0)
    assert torch.equal(fast(x, kv_cache=mine)[0], first)


@torch.no_grad()
def test_caches_that_do_not_fit_are_refused() -> None:
    fast = atb.compile(Passing().eval())
    x = torch.randn(1, 3, 64)
    with pytest.raises(core.InvalidArgumentError, match="num_heads"):
        fast(x, kv_cache=cache(num_heads=4))
    with pytest.raises(core.InvalidArgumentError, match="num_layers=1"):
        fast(x, kv_cache=cache(num_layers=1))

    class Two(Passing):
        def forward(self, x: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
            return self.second(self.first(x, kv_cache=a)[0], kv_cache=b)[0]

    with pytest.raises(core.UnsupportedError, match="with 2 caches"):
        atb.compile(Two().eval())(x, cache(), cache())

    class Twice(Passing):
        def forward(self, x: torch.Tensor, a: Any) -> torch.Tensor:
            return self.first(self.first(x, kv_cache=a)[0], kv_cache=a)[0]

    with pytest.raises(core.UnsupportedError, match="called twice with one cache"):
        atb.compile(Twice().eval())(x, cache())

    class Hidden(Passing):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.first(x, kv_cache=cache())[0]

    with pytest.raises(core.UnsupportedError, match="neither an argument nor an attribute"):
        atb.compile(Hidden().eval())(x)


@torch.no_grad()
def test_blocks_without_shapes_get_them_from_one_call() -> None:
    torch.manual_seed(0)
    mixed = Mixed().eval()
    x = torch.randn(2, 7, 12)
    fast = atb.compile(mixed, x)
    assert mixed.block.get_parameter("norm.weight").shape == (64,)
    assert distance(fast(x), mixed(x)) < 1e-4


@torch.no_grad()
def test_kernels_in_python_of_several_blocks_stay_apart() -> None:
    class Twofold(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.doubled = atb.GraphOp([atb.Custom(lambda x: x * 2), atb.Linear("p", out_features=8)])
            self.negate = atb.GraphOp([atb.Custom(lambda x: -3 * x), atb.ResidualAdd()])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.negate(self.doubled(x))

    module = Twofold().eval()
    x = torch.randn(1, 3, 8)
    expected = module(x)
    assert distance(atb.compile(module)(x), expected) < 1e-4


@torch.no_grad()
def test_streams_masks_and_residuals_of_a_block_inside_a_module() -> None:
    class Crossing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            attention = atb.FlashAttention("attn", num_heads=4)
            residual = atb.ResidualAdd("output", "input")
            self.block = atb.GraphOp([atb.Linear("qkv", out_features=192), attention, residual])

        def forward(self, x: torch.Tensor, memory: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
            return self.block(x, memory, memory, x * 2, attention_mask=seen)

    module = Crossing().eval()
    x, memory = torch.randn(2, 5, 64), torch.randn(2, 9, 64)
    seen = torch.ones(2, 9, dtype=torch.bool)
    seen[1, 6:] = False
    expected = module(x, memory, seen)
    assert distance(atb.compile(module)(x, memory, seen), expected) < 1e-4


@torch.no_grad()
def test_exported_programs_copies_and_changed_parameters() -> None:
    torch.manual_seed(0)
    mixed = Mixed().eval()
    x = torch.randn(2, 7, 12)
    expected = mixed(x)
    program = torch.export.export(mixed, (x,), strict=False)
    assert distance(program.module()(x), expected) < 1e-4
    assert distance(atb.compile(program)(x), expected) < 1e-4
    fast = atb.compile(mixed)
    assert distance(copy.deepcopy(fast)(x), expected) < 1e-4
    assert distance(fast(x), expected) < 1e-4
    mixed.block.get_parameter("norm.weight").mul_(2.0)
    assert distance(fast(x), expected) > 1e-2
    assert distance(fast(x), mixed(x)) < 1e-4


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a module"])
def test_torch_compile_leaves_blocks_to_atb(inside: bool) -> None:
    block = atb.GraphOp([atb.LayerNorm(), atb.Linear(out_features=8), atb.ResidualAdd()])
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), block, torch.nn.SiLU()) if inside else block
    with torch.no_grad():
        for tokens in (3, 3, 5):
            x = torch.randn(2, tokens, 8)
            expected = module(x)
            outer = torch.compile(module, backend="eager")
            torch.testing.assert_close(outer(x), expected)
            with pytest.raises(core.InvalidArgumentError, match=r"^\[GraphOp\]"):
                torch.compile(block, backend="eager")(x[0, 0])

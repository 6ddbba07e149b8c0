# SPDX-License-Identifier: Apache-2.0
"""`KVCache` on graphs in text form: chunks, forks, truncation, what is refused, copies, what an exception leaves."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Sequence
from typing import Any

import atb
import pytest
import torch
from atb_torch.dtypes import TORCH
from atb_torch.kv_cache import KVCache

pytestmark = pytest.mark.real

HEADS, HEAD_DIM = 4, 8
WIDTH = HEADS * HEAD_DIM

ATTENTION = """
graph @block(%x: f32[B, T, 32]) {
  symbols B in [1, 64], T in [1, 4096]
  const @q : f32[32, 32]
  const @k : f32[32, 32]
  const @v : f32[32, 32]
  const @o : f32[32, 32]
  const @scale : f32[] = 0.3535533905932738
  const @zero : f32[] = 0.0
  const @hidden : f32[] = -inf
  %ql = linear(%x, @q) : f32[B, T, 32]
  %kl = linear(%x, @k) : f32[B, T, 32]
  %vl = linear(%x, @v) : f32[B, T, 32]
  %qh = reshape(%ql) {shape=[B, T, 4, 8]} : f32[B, T, 4, 8]
  %kh = reshape(%kl) {shape=[B, T, 4, 8]} : f32[B, T, 4, 8]
  %vh = reshape(%vl) {shape=[B, T, 4, 8]} : f32[B, T, 4, 8]
  %qt = transpose(%qh) {perm=[0, 2, 1, 3]} : f32[B, 4, T, 8]
  %kt = transpose(%kh) {perm=[0, 2, 1, 3]} : f32[B, 4, T, 8]
  %vt = transpose(%vh) {perm=[0, 2, 1, 3]} : f32[B, 4, T, 8]
  %pos = iota() {shape=[T]} : i32[T]
  %rows = reshape(%pos) {shape=[T, 1]} : i32[T, 1]
  %columns = reshape(%pos) {shape=[1, T]} : i32[1, T]
  %visible = less_equal(%columns, %rows) : bool[T, T]
  %mask = where(%visible, @zero, @hidden) : f32[T, T]
  %scores = matmul(%qt, %kt) {scope="attn", transpose_b=true} : f32[B, 4, T, T]
  %scaled = mul(%scores, @scale) {scope="attn"} : f32[B, 4, T, T]
  %masked = add(%scaled, %mask) {scope="attn"} : f32[B, 4, T, T]
  %probs = softmax(%masked) {scope="attn"} : f32[B, 4, T, T]
  %context = matmul(%probs, %vt) {scope="attn"} : f32[B, 4, T, 8]
  %back = transpose(%context) {perm=[0, 2, 1, 3]} : f32[B, T, 4, 8]
  %flat = reshape(%back) {shape=[B, T, 32]} : f32[B, T, 32]
  %out = linear(%flat, @o) : f32[B, T, 32]
  %y = add(%x, %out) : f32[B, T, 32]
  return %y
}
"""


class Layer:
    """A block of attention, as a GraphOp uses a cache."""

    def __init__(self, seed: int = 0, kv_dtype: str = "f32", dtype: str = "f32") -> None:
        generator = torch.Generator().manual_seed(seed)
        self.weights = {name: torch.randn(WIDTH, WIDTH, generator=generator) / 5 for name in "qkvo"}
        given = {name: weight.to(TORCH[dtype]) for name, weight in self.weights.items()}
        graph = atb.Graph.parse(ATTENTION.replace("f32", dtype), given)
        self.compiled = graph.compile(threads=1, cached=["attn"], kv_dtype=kv_dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> Layer:
        twin = copy.copy(self)
        memo[id(self)] = twin
        return twin

    def __call__(self, x: torch.Tensor, cache: KVCache) -> torch.Tensor:
        slots = cache.slots_of(self, ["attn"], HEADS, HEAD_DIM, "attn")
        assert cache.length_of(slots) <= cache.max_tokens
        return torch.from_dlpack(cache.run(self.compiled, slots, x)[0])

    def eager(self, x: torch.Tensor) -> torch.Tensor:
        """The same mathematics in plain PyTorch."""
        q, k, v = ((x @ self.weights[name].T).unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2) for name in "qkv")
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + out.transpose(1, 2).flatten(-2) @ self.weights["o"].T


def new_cache(layers: int = 1, max_tokens: int = 512, **options: Any) -> KVCache:
    return KVCache(num_layers=layers, num_heads=HEADS, head_dim=HEAD_DIM, max_tokens=max_tokens, **options)


def hidden(batch: int, tokens: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(batch, tokens, WIDTH, generator=torch.Generator().manual_seed(seed))


def in_chunks(layers: Sequence[Layer], x: torch.Tensor, cache: KVCache, size: int) -> torch.Tensor:
    outputs = []
    for chunk in x.split(size, dim=1):
        for layer in layers:
            chunk = layer(chunk, cache)
        outputs.append(chunk)
    return torch.cat(outputs, dim=1)


@pytest.fixture(scope="module")
def layers() -> list[Layer]:
    return [Layer(0), Layer(1)]


@pytest.mark.parametrize("batch", [1, 3])
def test_chunks_give_equal_bits_and_torchs_numbers(layers: list[Layer], batch: int) -> None:
    x = hidden(batch, 140)
    whole = in_chunks(layers, x, new_cache(2), 140)
    expected = layers[1].eager(layers[0].eager(x))
    assert (whole - expected).abs().max() / expected.std() < 1e-4
    for size in (1, 3, 7):
        cache = new_cache(2)
        assert torch.equal(in_chunks(layers, x, cache, size), whole)
        assert cache.length == 140
        assert cache.batch_size == batch


def test_a_mistake_would_be_noticed(layers: list[Layer]) -> None:
    x = hidden(1, 20)
    cache = new_cache(2)
    whole = in_chunks(layers, x, new_cache(2), 20)
    first = in_chunks(layers, x[:, :10], cache, 10)
    cache.truncate(9)
    second = in_chunks(layers, x[:, 10:], cache, 10)
    assert torch.equal(first, whole[:, :10])
    assert not torch.allclose(second, whole[:, 10:], atol=1e-3)


def test_bfloat16_rounds_before_every_use(layers: list[Layer]) -> None:
    layer = Layer(0, "bf16")
    x = hidden(2, 50)
    whole = in_chunks([layer], x, new_cache(dtype=torch.bfloat16), 50)
    assert torch.equal(in_chunks([layer], x, new_cache(dtype="bf16"), 7), whole)
    exact = layers[0].eager(x)
    assert 1e-5 < (whole - exact).abs().max() < 0.1
    with pytest.raises(atb.InvalidArgumentError, match=r"heads of 8 in bf16, the attention in attn has .* in f32"):
        in_chunks(layers[:1], x, new_cache(dtype="bf16"), 50)
    with pytest.raises(atb.InvalidArgumentError, match="dtype is f16, allowed are f32 and bf16"):
        new_cache(dtype=torch.float16)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_half_graphs_keep_f32_caches(layers: list[Layer], dtype: str) -> None:
    layer = Layer(0, dtype=dtype)
    x = hidden(2, 40).to(TORCH[dtype])
    whole = in_chunks([layer], x, new_cache(), 40)
    assert whole.dtype == TORCH[dtype]
    assert torch.equal(in_chunks([layer], x, new_cache(), 3), whole)
    exact = layers[0].eager(x.float())
    assert (whole - exact).square().mean().sqrt() / exact.std() < (2e-3 if dtype == "f16" else 2e-2)


def test_truncate_repairs(layers: list[Layer]) -> None:
    x = hidden(2, 60)
    cache = new_cache(2)
    in_chunks(layers, x[:, :40], cache, 40)
    layers[0](x[:, 40:50], cache)  # and then the model fails: only the first layer has appended
    assert cache.length == 40
    with pytest.raises(atb.FailedPreconditionError, match=r"hold \[50, 40\] tokens; truncate\(40\)"):
        cache.length_of([0, 1])
    cache.truncate(cache.length)
    assert torch.equal(in_chunks(layers, x[:, 40:], cache, 20), in_chunks(layers, x, new_cache(2), 60)[:, 40:])
    with pytest.raises(atb.InvalidArgumentError, match="truncate to 61 tokens: the cache holds 60"):
        cache.truncate(61)


def test_fork_goes_on_alone(layers: list[Layer]) -> None:
    prompt, left, right = hidden(2, 45), hidden(2, 9, seed=2), hidden(2, 9, seed=3)
    cache = new_cache(2)
    in_chunks(layers, prompt, cache, 45)
    before = cache.blocks_in_use
    fork = cache.fork()
    assert (fork.length, fork.blocks_in_use, cache.blocks_in_use) == (45, before, before)
    assert fork.shared_blocks == before
    a, b = in_chunks(layers, left, cache, 9), in_chunks(layers, right, fork, 9)
    assert fork.shared_blocks == before // 2  # the full ones stay shared
    for tail, actual in ((left, a), (right, b)):
        whole = in_chunks(layers, torch.cat([prompt, tail], dim=1), new_cache(2), 54)
        assert torch.equal(actual, whole[:, 45:])
    cache.reset()
    assert cache.blocks_in_use == 0
    assert fork.length == 54
    del cache
    gc.collect()
    assert fork.shared_blocks == 0
    in_chunks(layers, left, fork, 9)


def test_reset_frees_batch_and_slots(layers: list[Layer]) -> None:
    cache = new_cache(1)
    assert (cache.length, cache.batch_size, cache.blocks_in_use) == (0, None, 0)
    layers[0](hidden(2, 5), cache)
    with pytest.raises(atb.InvalidArgumentError, match="holds 2 sequences, the call has 3; reset"):
        layers[0](hidden(3, 1), cache)
    with pytest.raises(atb.InvalidArgumentError, match="1 of num_layers=1 belong to other GraphOps"):
        layers[1](hidden(2, 1), cache)
    assert cache.length == 5
    cache.reset()
    assert (cache.length, cache.batch_size, cache.blocks_in_use) == (0, None, 0)
    x = hidden(3, 4)
    assert torch.equal(layers[1](x, cache), layers[1](x, new_cache()))


def test_too_many_tokens(layers: list[Layer]) -> None:
    cache = new_cache(max_tokens=10)
    x = hidden(1, 10)
    first = layers[0](x[:, :6], cache)
    with pytest.raises(atb.ResourceExhaustedError, match="holds 6 tokens, the call adds 5, max_tokens is 10"):
        layers[0](hidden(1, 5), cache)
    assert cache.length == 6
    whole = layers[0](x, new_cache())
    assert torch.equal(torch.cat([first, layers[0](x[:, 6:], cache)], dim=1), whole)


def test_another_shape_of_heads_names_both(layers: list[Layer]) -> None:
    cache = KVCache(num_layers=1, num_heads=2, head_dim=16, max_tokens=8)
    expected = "num_heads=4 .of keys., head_dim=8, the cache num_heads=2, head_dim=16"
    with pytest.raises(atb.InvalidArgumentError, match=expected):
        layers[0](hidden(1, 1), cache)
    for options in ({"num_layers": 0}, {"num_heads": -1}, {"head_dim": 1 << 40}, {"max_tokens": 0}):
        with pytest.raises(atb.InvalidArgumentError, match=r"\[kv\]"):
            KVCache(**{"num_layers": 1, "num_heads": 2, "head_dim": 2, "max_tokens": 2, **options})
    with pytest.raises(atb.InvalidArgumentError, match=r"num_layers is 1\.5"):
        KVCache(1.5, 2, 2, 2)  # type: ignore[arg-type]


def test_a_failing_call_appends_nothing(layers: list[Layer]) -> None:
    x = hidden(2, 30)
    cache = new_cache()
    layers[0](x[:, :20], cache)
    blocks = cache.blocks_in_use
    with pytest.raises(atb.InvalidArgumentError, match="input x"):
        layers[0](torch.zeros(2, 5, WIDTH + 1), cache)
    with pytest.raises(atb.InvalidArgumentError, match="its attentions read a cache"):
        layers[0].compiled(x)
    assert (cache.length, cache.blocks_in_use) == (20, blocks)
    assert torch.equal(layers[0](x[:, 20:], cache), layers[0](x, new_cache())[:, 20:])


def test_copies(layers: list[Layer]) -> None:
    prompt, tail = hidden(1, 20), hidden(1, 5, seed=2)
    cache = new_cache(2)
    in_chunks(layers, prompt, cache, 20)
    expected = in_chunks(layers, tail, cache.fork(), 5)
    alone = copy.deepcopy(cache)  # for the same layers
    assert torch.equal(in_chunks(layers, tail, alone, 5), expected)
    assert cache.length == 20
    model = {"layers": layers, "cache": cache}
    twin = copy.deepcopy(model)  # layers and cache go together
    assert torch.equal(in_chunks(twin["layers"], tail, twin["cache"], 5), expected)
    assert (cache.length, twin["cache"].length) == (20, 25)


def test_only_empty_caches_are_pickled(layers: list[Layer]) -> None:
    cache = new_cache(3, dtype=torch.bfloat16)
    twin = pickle.loads(pickle.dumps(cache))
    assert (twin.num_layers, twin.max_tokens, twin.dtype_name) == (3, 512, "bf16")
    used = new_cache()
    layers[0](hidden(1, 1), used)
    with pytest.raises(atb.FailedPreconditionError, match="holds tokens is not saved; reset"):
        pickle.dumps(used)
    used.reset()
    assert pickle.loads(pickle.dumps(used)).length == 0


def test_threads_with_a_cache_each(layers: list[Layer]) -> None:
    prompt = hidden(2, 33)
    cache = new_cache(2)
    in_chunks(layers, prompt, cache, 33)
    tails = [hidden(2, 12, seed=seed) for seed in range(4)]
    expected = [in_chunks(layers, tail, cache.fork(), 1) for tail in tails]
    forks = [cache.fork() for _ in tails]
    results: dict[int, torch.Tensor] = {}

    def work(index: int) -> None:
        results[index] = in_chunks(layers, tails[index], forks[index], 1)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(tails))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, tail_result in enumerate(expected):
        assert torch.equal(results[index], tail_result)


def test_an_empty_cache_is_true() -> None:
    assert new_cache()
    assert repr(new_cache()) == "KVCache(num_layers=1, num_heads=4, head_dim=8, length=0 of 512, dtype=f32)"

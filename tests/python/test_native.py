# SPDX-License-Identifier: Apache-2.0
"""The steps of attention one by one: numbers against f64, splits and merge orders, bits, positions, errors."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import atb
import numpy as np
import pytest
from atb import native

pytestmark = pytest.mark.real


def arrays(batch: int, tokens: int, heads: int, kv_heads: int, keys: int, d: int, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    q = generator.standard_normal((batch, tokens, heads, d), dtype=np.float32) * 2
    k, v = (generator.standard_normal((batch, keys, kv_heads, d), dtype=np.float32) for _ in range(2))
    return q, k, v


def scores_of(q: Any, k: Any, scale: float | None = None) -> Any:
    """[B, H, T, S] in f64."""
    group = q.shape[2] // k.shape[2]
    repeated = np.repeat(k.astype(np.float64), group, axis=2)
    repeated = np.broadcast_to(repeated, (q.shape[0], *repeated.shape[1:]))
    return np.einsum("bthd,bshd->bhts", q.astype(np.float64), repeated) * (scale or q.shape[-1] ** -0.5)


def weighted(weights: Any, v: Any, heads: int) -> Any:
    repeated = np.repeat(v.astype(np.float64), heads // v.shape[2], axis=2)
    repeated = np.broadcast_to(repeated, (weights.shape[0], *repeated.shape[1:]))
    return np.einsum("bhts,bshd->bthd", weights, repeated)


def by_numpy(q: Any, k: Any, v: Any, hidden: Any = None) -> Any:
    """hidden: bools [T, S] or [B, 1, T, S]."""
    scores = scores_of(q, k)
    if hidden is not None:
        scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weighted(weights / weights.sum(axis=-1, keepdims=True), v, q.shape[2])


def array_of(tensor: Any) -> Any:
    return np.asarray(tensor)


def close(actual: Any, expected: Any, bound: float = 1e-6) -> None:
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max(initial=0.0) <= bound * np.abs(expected).max(initial=1e-30)


def same_bits(actual: Any, expected: Any) -> bool:
    return array_of(actual).tobytes() == array_of(expected).tobytes()


def later_keys(tokens: int, keys: int) -> Any:
    return np.arange(keys)[None, :] > np.arange(tokens)[:, None] + keys - tokens


@pytest.mark.parametrize(("heads", "kv_heads", "d"), [(4, 2, 64), (3, 3, 20), (6, 1, 33)])
@pytest.mark.parametrize(("tokens", "keys"), [(1, 500), (7, 129), (130, 130), (3, 3)])
def test_the_whole(heads: int, kv_heads: int, d: int, tokens: int, keys: int) -> None:
    q, k, v = arrays(2, tokens, heads, kv_heads, keys, d)
    close(native.flash_attention(q, k, v), by_numpy(q, k, v), 3e-6)
    close(native.flash_attention(q, k, v, causal=True), by_numpy(q, k, v, later_keys(tokens, keys)), 3e-6)


def test_a_partial_result_is_what_it_says() -> None:
    q, k, v = arrays(2, 5, 4, 2, 200, 24)
    part = native.partial_attention(q, k, v, scale=0.3)
    scores = scores_of(q, k, 0.3)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    close(part.max, scores.max(axis=-1).swapaxes(1, 2))
    close(part.sum, weights.sum(axis=-1).swapaxes(1, 2), 3e-6)
    close(part.output, weighted(weights, v, 4), 3e-6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "cuts", [(0, 300), (0, 1, 300), (0, 37, 100, 250, 300), (0, 128, 256, 300), (*range(0, 300, 25), 300)]
)
def test_any_split_in_any_order_agrees_with_the_whole(cuts: tuple[int, ...], causal: bool) -> None:
    q, k, v = arrays(2, 9, 4, 2, 300, 48, seed=len(cuts))
    whole = native.flash_attention(q, k, v, causal=causal)
    parts = [
        native.partial_attention(q, k[:, a:b], v[:, a:b], causal=causal, first_query=300 - 9 - a)
        for a, b in itertools.pairwise(cuts)
    ]
    generator = np.random.default_rng(1)
    for _ in range(4):
        order = [parts[i] for i in generator.permutation(len(parts))]
        close(native.finish(native.merge(*order)), whole)
        while len(order) > 1:  # a tree: any two neighbours at a time
            i = int(generator.integers(len(order) - 1))
            order[i : i + 2] = [native.merge(*order[i : i + 2])]
        close(native.finish(order[0]), whole)


@pytest.mark.parametrize(("tokens", "window"), [(1, 0), (6, 0), (150, 0), (150, 140)])
@pytest.mark.parametrize("d", [64, 40])
def test_one_partial_result_a_partition_has_the_bits_of_the_whole(tokens: int, window: int, d: int) -> None:
    q, k, v = arrays(2, tokens, 4, 2, 600, d)
    options: dict[str, Any] = {"causal": True, "window": window}
    whole = native.flash_attention(q, k, v, **options)
    blocks = native.qkv_load(q, k, v)
    parts = native.block_attention(*blocks, split=128, **options)
    assert parts.output.shape == (5, 2, tokens, 4, d)
    assert same_bits(native.output_merge(*parts), whole)
    slices = [
        native.partial_attention(q, k[:, a : a + 128], v[:, a : a + 128], first_query=600 - tokens - a, **options)
        for a in range(0, 600, 128)
    ]
    assert same_bits(native.finish(native.merge(*slices)), whole)
    running = None
    for a, b in [(0, 256), (256, 384), (384, 600)]:
        running = native.partial_attention(
            q, k[:, a:b], v[:, a:b], first_query=600 - tokens - a, running=running, **options
        )
    assert same_bits(native.finish(running), whole)
    backwards = native.finish(native.merge(*reversed(slices)))
    assert not same_bits(backwards, whole)  # the order is what decides; this test can fail
    close(backwards, whole)


def test_statistics_are_those_of_all_keys() -> None:
    q, k, v = arrays(1, 4, 2, 2, 300, 16)
    parts = native.block_attention(*native.qkv_load(q, k, v), split=128)
    largest, total = native.online_softmax(parts.max, parts.sum)
    once = native.partial_attention(q, k, v)
    assert same_bits(largest, once.max)
    assert same_bits(total, once.sum)
    assert same_bits(native.output_merge(*parts, finish=False), once.output)


def test_a_shared_prefix_is_that_of_each_sequence() -> None:
    q, own_k, own_v = arrays(5, 2, 4, 2, 30, 32)
    _, prefix_k, prefix_v = arrays(1, 1, 4, 2, 256, 32, seed=9)
    prefix = native.partial_attention(q, prefix_k, prefix_v)
    output = native.finish(native.partial_attention(q, own_k, own_v, running=prefix, causal=True))
    k, v = (
        np.concatenate([np.repeat(shared, 5, axis=0), own], axis=1)
        for shared, own in ((prefix_k, own_k), (prefix_v, own_v))
    )
    assert same_bits(output, native.flash_attention(q, k, v, causal=True))


def test_sequences_of_a_batch_stand_where_they_are_said_to() -> None:
    q, k, v = arrays(3, 2, 2, 1, 40, 16)
    lengths = [40, 11, 2]
    part = native.partial_attention(q, k, v, causal=True, first_query=[n - 2 for n in lengths])
    output = array_of(native.finish(part))
    for i, n in enumerate(lengths):
        alone = native.flash_attention(q[i : i + 1], k[i : i + 1, :n], v[i : i + 1, :n], causal=True)
        assert same_bits(output[i : i + 1], alone)
    given = native.partial_attention(q, k, v, causal=True, first_query=np.array([n - 2 for n in lengths]))
    assert same_bits(given.output, part.output)


def test_queries_before_all_keys_see_nothing() -> None:
    q, k, v = arrays(1, 3, 2, 2, 20, 16)
    part = native.partial_attention(q, k, v, causal=True, first_query=-2)
    assert np.array_equal(array_of(part.sum)[:, :2], np.zeros((1, 2, 2)))
    assert np.array_equal(array_of(part.max)[:, :2], np.full((1, 2, 2), -np.inf))
    assert np.array_equal(array_of(native.finish(part))[:, :2], np.zeros((1, 2, 2, 16)))
    assert np.array_equal(array_of(native.finish(part))[:, 2], v[:, 0])
    for far in (-(2**31), 2**31 - 1):
        assert np.isfinite(array_of(native.partial_attention(q, k, v, causal=True, first_query=far).output)).all()


def test_masks() -> None:
    q, k, v = arrays(2, 5, 4, 2, 150, 16)
    hidden = np.random.default_rng(3).random((2, 1, 5, 150)) < 0.3
    hidden[..., 0] = False
    mask = np.where(hidden, -np.inf, 0.0).astype(np.float32)
    expected = by_numpy(q, k, v, hidden)
    close(native.flash_attention(q, k, v, mask), expected, 3e-6)
    parts = [native.partial_attention(q, k[:, a:b], v[:, a:b], mask[..., a:b]) for a, b in ((0, 60), (60, 150))]
    close(native.finish(native.merge(*parts)), expected, 3e-6)


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norms_on_the_way(kind: str) -> None:
    q, k, v = arrays(2, 3, 4, 2, 50, 24)
    generator = np.random.default_rng(4)
    weight_q, weight_k, bias_q, bias_k = (generator.standard_normal(24, dtype=np.float32) for _ in range(4))

    def normed(x: Any, weight: Any, bias: Any) -> Any:
        x = x.astype(np.float64)
        if kind == "layer":
            x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5) * weight
        return x + bias if kind == "layer" else x

    biases = {"q_bias": bias_q, "k_bias": bias_k} if kind == "layer" else {}
    blocks = native.qkv_load(q, k, v, q_weight=weight_q, k_weight=weight_k, norm=kind, eps=1e-5, **biases)
    assert blocks.k.shape == (2, 2, 4, 24, 16)
    output = native.output_merge(*native.block_attention(*blocks))
    close(output, by_numpy(normed(q, weight_q, bias_q), normed(k, weight_k, bias_k), v), 5e-6)


def test_blocks_of_any_strides_and_dtypes() -> None:
    q, k, v = arrays(2, 3, 4, 2, 50, 16)
    expected = native.flash_attention(q, k, v)
    heads_first = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (q, k, v)]
    assert same_bits(native.finish(native.partial_attention(*heads_first)), expected)
    assert same_bits(native.flash_attention(*(x.astype(np.float64) for x in (q, k, v))), expected)
    loaded = [array_of(x) for x in native.qkv_load(q, k, v)]
    turned = [np.asfortranarray(x) for x in loaded]
    assert same_bits(native.output_merge(*native.block_attention(*turned)), expected)
    halves = [x.astype(np.float16) for x in (q, k, v)]
    rounded = [x.astype(np.float32) for x in halves]
    assert same_bits(native.finish(native.partial_attention(*halves)), native.flash_attention(*rounded))


def test_nothing_at_all() -> None:
    q, k, v = arrays(2, 3, 4, 2, 0, 16)
    assert np.array_equal(array_of(native.finish(native.partial_attention(q, k, v))), np.zeros((2, 3, 4, 16)))
    parts = native.block_attention(*native.qkv_load(q, k, v), split=128)
    assert parts.output.shape == (0, 2, 3, 4, 16)
    assert np.array_equal(array_of(native.output_merge(*parts)), np.zeros((2, 3, 4, 16)))
    q, k, v = arrays(0, 3, 4, 2, 7, 16)
    assert native.finish(native.partial_attention(q, k, v)).shape == (0, 3, 4, 16)


def refused(part: str, step: Any, *args: Any, **options: Any) -> None:
    with pytest.raises(atb.InvalidArgumentError, match=part):
        step(*args, **options)


def test_bad_calls_are_refused() -> None:
    q, k, v = arrays(2, 3, 4, 2, 50, 16)
    refused("q is .* must have 4 axes", native.partial_attention, q[0], k, v)
    refused("k is list; an array", native.partial_attention, q, [1, 2], v)
    refused("v is of int32", native.partial_attention, q, k, v.astype(np.int32))
    refused("extents of k and v|expected", native.partial_attention, q, k, v[:, :49])
    refused("head sizes", native.partial_attention, q, k[..., :8], v[..., :8])
    refused("multiple of", native.partial_attention, q[:, :, :3], k, v)
    refused("split 100", native.block_attention, *native.qkv_load(q, k, v), split=100)
    refused("window", native.partial_attention, q, k, v, window=-1)
    refused("softcap", native.partial_attention, q, k, v, softcap=float("nan"))
    refused("first_query .* 32 bits", native.partial_attention, q, k, v, first_query=2**31)
    refused("first_query is of float32", native.partial_attention, q, k, v, first_query=np.zeros(1, np.float32))
    refused("first_query|B", native.partial_attention, q, k, v, first_query=[1, 2, 3])
    refused("mask has 5 axes", native.partial_attention, q, k, v, np.zeros((1, 1, 1, 3, 50), np.float32))
    refused("mask", native.partial_attention, q, k, v, np.zeros((3, 49), np.float32))
    refused("norm .*batch", native.qkv_load, q, k, v, norm="batch")
    refused("no partial results", native.merge)
    part = native.partial_attention(q, k, v)
    other = native.partial_attention(q[:, :2], k, v)
    refused("expected", native.merge, part, other)
    refused("head|expected", native.block_attention, *native.qkv_load(q, k, v)[:2], v)


def test_graphs_are_kept_and_threads_may_share_them() -> None:
    q, k, v = arrays(2, 3, 4, 2, 300, 16)
    expected = native.finish(native.partial_attention(q, k, v))
    made = native._compiled.cache_info().misses
    failures: list[int] = []

    def call(n: int) -> None:
        if not same_bits(native.finish(native.partial_attention(q, k, v)), expected):
            failures.append(n)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    longer = arrays(3, 1, 4, 2, 777, 16)
    native.partial_attention(*longer)  # other extents, the same graph
    assert native._compiled.cache_info().misses == made

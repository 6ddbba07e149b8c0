# SPDX-License-Identifier: Apache-2.0
"""The profiler on declared blocks: `attention_block` is one launch with its nodes inside, and what adds another."""

from __future__ import annotations

from typing import Any

import atb as core
import atb_torch as atb
import pytest
import torch
from torch import nn

pytestmark = pytest.mark.real

HIDDEN, HEADS = 64, 4


def attention_block() -> atb.GraphOp:
    return atb.GraphOp(
        [
            atb.LayerNorm("query", eps=1e-5),
            atb.Linear("qkv_proj", out_features=3 * HIDDEN),
            atb.FlashAttention("attn", num_heads=HEADS, causal=True),
            atb.Linear("out_proj", out_features=HIDDEN),
            atb.ResidualAdd("output", "input"),
        ]
    )


def streams() -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(2, 16, HIDDEN, generator=torch.Generator().manual_seed(seed)) for seed in range(4))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_block_is_one_entry_and_one_launch(threads: int) -> None:
    block = attention_block()
    block.threads = threads
    query, key, value, residual = streams()
    expected = block(query, key, value, residual)
    with core.profiled() as entries:
        output = block(query, key, value, residual)
    assert torch.equal(output, expected)
    assert len(entries) == 1
    (entry,) = entries
    assert (entry["steps"], entry["launches"], entry["tokens"]) == (1, 1, 32)
    assert entry["wakeups"]["count"] == threads - 1
    # Every kernel of the report ran inside, once.
    report = block.report()
    assert len(entry["nodes"]) == report["kernels_per_layer"]["after"]
    assert all(node["count"] == 1 for node in entry["nodes"])
    operators = [node["op"] for node in entry["nodes"]]
    assert "flash_attention" in operators
    # Three slices of the projection on streams of their own, each with its norm, and the output's with the residual.
    assert operators.count("fused_linear") == 4
    assert report["kernels_per_layer"]["after"] < report["kernels_per_layer"]["before"]


def test_the_report_holds_intermediate_bytes() -> None:
    block, tokens = attention_block(), 512
    block(*streams())
    size = block.report(tokens)["intermediate_bytes_per_layer"]
    assert 0 < size["after"] < size["before"]
    scores = 4 * HEADS * tokens * tokens  # written, masked and normalized before, and never written after
    assert size["before"] > 3 * scores
    assert size["after"] < scores
    assert "intermediate results" in str(block.report(tokens))


class Doubling(atb.Plugin):
    def postprocess(self, outputs: Any) -> Any:
        return outputs * 2


def test_code_in_python_splits_the_launch() -> None:
    block, call = attention_block(), streams()
    assert block.profile(*call)["launches"] == 1
    handle = block.register_plugin("post_attention", Doubling())
    split = block.profile(*call)
    assert split["launches"] == 2
    assert [node["op"] for node in split["nodes"]].count("external") == 1
    handle.remove()
    assert block.profile(*call)["launches"] == 1


def test_a_profile_prints_as_a_table() -> None:
    text = str(attention_block().profile(*streams()))
    assert ": 1 launch, " in text
    assert "flash_attention" in text
    assert "share" in text


def test_two_blocks_are_two_entries_and_compiled_one() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = attention_block(), attention_block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x))

    model, x = Two().eval(), streams()[0]
    with torch.no_grad(), core.profiled() as entries:
        model(x)
    assert [entry["launches"] for entry in entries] == [1, 1]
    fast = atb.compile(model, x, threads=1)
    with torch.no_grad(), core.profiled() as entries:
        fast(x)
    assert [entry["launches"] for entry in entries] == [1]


def test_nothing_is_recorded_outside() -> None:
    block, x = attention_block(), streams()[0]
    with core.profiled() as outer:
        with core.profiled() as inner:
            block(x)
        assert len(inner) == 1
    block(x)
    assert len(inner) == 1
    assert not outer

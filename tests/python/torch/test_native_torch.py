# SPDX-License-Identifier: Apache-2.0
"""The steps of attention on tensors, the patterns that recombine them, and the examples of docs/native_steps.md."""

from __future__ import annotations

import atb
import atb_torch
import pytest
import torch
from atb_torch import native
from documented import blocks, run_examples
from torch.nn import functional

pytestmark = pytest.mark.real


def test_the_examples_of_the_page_run() -> None:
    """Each ends in an assertion."""
    assert all("assert" in source for _, source in blocks("native_steps.md", "python"))
    run_examples("native_steps.md")


def test_results_are_tensors_without_history() -> None:
    q = torch.randn(1, 2, 4, 16, requires_grad=True)
    k, v = torch.randn(2, 1, 30, 2, 16).bfloat16()
    with pytest.raises(atb.UnsupportedError, match="requires gradients"):
        native.partial_attention(q, k, v)
    with pytest.raises(atb.UnsupportedError, match="float64"):
        native.partial_attention(q.detach().double(), k, v)
    q = q.detach()
    part = native.partial_attention(q, k, v)
    with torch.no_grad():  # as blocks do
        assert torch.equal(native.partial_attention(q.clone().requires_grad_(), k, v).output, part.output)
    assert isinstance(part, native.Partial)
    assert all(isinstance(x, torch.Tensor) and not x.requires_grad for x in part)
    largest, total = native.online_softmax(part.max[None], part.sum[None])
    assert torch.equal(largest, part.max)
    assert torch.equal(total, part.sum)
    again = native.partial_attention(q, k, v, running=part)  # all keys twice weigh as once
    expected = functional.scaled_dot_product_attention(
        q.transpose(1, 2), k.float().transpose(1, 2), v.float().transpose(1, 2), enable_gqa=True
    ).transpose(1, 2)
    torch.testing.assert_close(native.finish(again), expected.detach(), rtol=1e-5, atol=1e-6)


def test_what_is_no_partial_result_is_one_clear_error() -> None:
    x = torch.randn(3, 1, 2, 4, 16)
    for call in (native.finish, native.merge, lambda value: native.partial_attention(*x, running=value)):
        with pytest.raises(atb.InvalidArgumentError, match=r"^\[native\] .*native\.Partial"):
            call(x[0])


def test_tensors_that_are_only_marked_as_negated() -> None:
    q, k, v = torch.randn(3, 1, 4, 2, 16)
    marked = [torch.complex(x, x).conj().imag for x in (q, k, v)]
    assert all(x.is_neg() for x in marked)
    assert torch.equal(native.flash_attention(*marked), native.flash_attention(-q, -k, -v))
    blocks_of = native.qkv_load(*marked)
    assert all(map(torch.equal, blocks_of, native.qkv_load(-q, -k, -v)))


class Prefixed(torch.nn.Module):
    """Attention of a batch of prompts that begin with one prefix, whose keys and values the module keeps."""

    def __init__(self, prefix: int, causal: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(prefix)
        self.causal = causal
        self.register_buffer("keys", torch.randn(1, 2, prefix, 16, generator=generator))
        self.register_buffer("values", torch.randn(1, 2, prefix, 16, generator=generator))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        keys = torch.cat([self.keys.expand(q.shape[0], -1, -1, -1), k], dim=2)
        values = torch.cat([self.values.expand(q.shape[0], -1, -1, -1), v], dim=2)
        scores = q @ keys.transpose(-1, -2) * 0.25
        if self.causal:
            seen = torch.ones(q.shape[2], keys.shape[2], dtype=torch.bool).tril(keys.shape[2] - q.shape[2])
            scores = scores.masked_fill(~seen, -torch.inf)
        return scores.softmax(-1) @ values


def fused(module: torch.nn.Module, batch: int, tokens: int) -> str:
    """The graph that runs; its numbers are those of the module."""
    q, k, v = torch.randn(3, batch, 2, tokens, 16, generator=torch.Generator().manual_seed(tokens))
    with torch.no_grad():
        compiled = atb_torch.import_module(module.eval(), (q, k, v)).compile()
        for sizes in ((batch, tokens), (1, 1), (2, 3 * tokens)):
            q, k, v = torch.randn(3, sizes[0], 2, sizes[1], 16, generator=torch.Generator().manual_seed(tokens))
            torch.testing.assert_close(torch.from_dlpack(compiled(q, k, v)[0]), module(q, k, v), rtol=1e-5, atol=1e-6)
    return str(compiled)


@pytest.mark.parametrize("prefix", [128, 256, 300])
@pytest.mark.parametrize("causal", [False, True])
def test_a_shared_prefix_is_attended_once(prefix: int, causal: bool) -> None:
    text = fused(Prefixed(prefix, causal), 4, 5)
    assert text.count("block_attention(") == 2
    assert f"f32[1, 2, {prefix // 128 * 8}, 16, 16]" in text  # panels of one prefix, not of four


def test_a_short_prefix_stays() -> None:
    text = fused(Prefixed(100, False), 4, 5)
    assert "flash_attention(" in text
    assert "block_attention(" not in text

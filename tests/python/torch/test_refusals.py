# SPDX-License-Identifier: Apache-2.0
"""What the front door refuses, and in which words: kernels under generate(), training mode, sizes that do not fit."""

from __future__ import annotations

import logging
from typing import Any

import atb
import atb_torch
import pytest
import torch
from atb import FusionOp, Pattern
from pattern_cases import ByTarget, optimizer

pytestmark = pytest.mark.real

IDS = torch.ones(2, 3, dtype=torch.int64)


class Decoder(torch.nn.Module):
    """The smallest one: embedding, causal attention, head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.qkv, self.head = torch.nn.Embedding(11, 8), torch.nn.Linear(8, 24), torch.nn.Linear(8, 11)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(input_ids)
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.qkv(x).split(8, -1))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(torch.relu(x + y.transpose(1, 2).flatten(-2)))


class WithoutKernel(ByTarget):
    """A fusion that runs by its definition."""

    def replace(self, matched_nodes: Any) -> FusionOp:
        return FusionOp("mine")


def compiled(*patterns: Pattern) -> atb_torch.CompiledModule:
    return atb_torch.compile(Decoder().eval(), IDS, optimizer=optimizer(*patterns) if patterns else None)


def test_generate_with_a_kernel_in_python() -> None:
    fast = compiled(ByTarget(torch.ops.aten.relu, torch.relu))
    with pytest.raises(atb.UnsupportedError) as error:
        fast.generate(IDS, max_new_tokens=2)
    assert str(error.value).startswith("[generate] my_fused_op: computed by a kernel of its own")
    assert "compiled without that pattern" in str(error.value)


def test_generate_with_a_fusion_that_has_only_a_definition() -> None:
    expected = compiled().generate(IDS, max_new_tokens=4)
    assert torch.equal(compiled(WithoutKernel(torch.ops.aten.relu)).generate(IDS, max_new_tokens=4), expected)


def test_training_mode_is_refused_by_generate_as_by_forward() -> None:
    fast = compiled()
    before = fast.generate(IDS, max_new_tokens=2)
    fast.module.train()
    said = []
    for call in (lambda: fast(IDS), lambda: fast.generate(IDS, max_new_tokens=2)):
        with pytest.raises(atb.UnsupportedError, match=r"in training mode; call \.eval\(\)") as error:
            call()
        said.append(str(error.value))
    assert said[0] == said[1]
    fast.module.eval()
    assert torch.equal(fast.generate(IDS, max_new_tokens=2), before)


def test_a_width_that_does_not_fit_is_told_once(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    fast = atb_torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4)).eval())
    with pytest.raises(atb.UnsupportedError, match=r"cannot export the module: .*\[3, 5\]") as error:
        fast(torch.randn(3, 5))
    heard = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert not heard and capfd.readouterr().err == ""
    assert isinstance(error.value.__cause__, Exception), "the whole of it stays at hand"
    with torch.no_grad():
        assert fast(torch.randn(3, 4)).shape == (3, 4)
    logging.getLogger("torch._subclasses.fake_tensor").error("others are heard")
    assert caplog.records[-1].getMessage() == "others are heard"

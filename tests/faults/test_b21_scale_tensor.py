# SPDX-License-Identifier: Apache-2.0
"""B21: a scale that is a 0-dim tensor argument is neither a crash nor a constant."""

import atb_torch
import pytest
import torch

pytestmark = pytest.mark.real


class Attention(torch.nn.Module):
    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: torch.Tensor
    ) -> torch.Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) * scale + mask, dim=-1) @ v


def test_scale_of_each_call() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 8, 8, generator=generator) for _ in range(3))
    mask = torch.full((8, 8), -1e9).triu(1)
    model = Attention().eval()
    fast = atb_torch.compile(model, (q, k, v, mask, torch.tensor(0.5)), threads=1)
    outputs = []
    for scale in (0.5, 2.0, 0.5):
        with torch.no_grad():
            outputs.append(fast(q, k, v, mask, torch.tensor(scale)))
            torch.testing.assert_close(outputs[-1], model(q, k, v, mask, torch.tensor(scale)), rtol=1e-5, atol=1e-5)
    assert torch.equal(outputs[0], outputs[2])
    assert not torch.allclose(outputs[0], outputs[1])
    assert len(fast.variants) == 1

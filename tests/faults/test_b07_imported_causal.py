# SPDX-License-Identifier: Apache-2.0
"""B07, import: a causal mask over fewer queries than keys is aligned to the top left corner, as torch defines it."""

import atb_torch
import pytest
import torch

pytestmark = pytest.mark.real


class Causal(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


@pytest.mark.parametrize("dynamic", [True, False])
def test_top_left_corner(dynamic: bool) -> None:
    q, k = torch.zeros(1, 1, 2, 4), torch.randn(1, 1, 5, 4)
    v = torch.arange(5.0).reshape(1, 1, 5, 1).expand(1, 1, 5, 4)
    fast = atb_torch.compile(Causal().eval(), None if dynamic else (q, k, v), threads=1)
    with torch.no_grad():
        out = fast(q, k, v)
    assert out[0, 0, :, 0].tolist() == [0.0, 0.5]

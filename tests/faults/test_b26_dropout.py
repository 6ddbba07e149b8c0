# SPDX-License-Identifier: Apache-2.0
"""B26: dropout is refused where it is live, and gone where it is not."""

import atb
import atb_torch
import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.real


class Block(torch.nn.Module):
    """A feed-forward block with dropout between its halves."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = (torch.nn.Linear(8, 8, bias=False) for _ in range(3))
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.dropout(F.silu(self.gate(x)) * self.up(x)))


def test_training_mode_is_refused() -> None:
    with pytest.raises(atb.UnsupportedError, match=r"dropout.*\.eval\(\)"):
        atb_torch.compile(Block().train(), torch.randn(3, 8))


def test_back_to_training_is_refused() -> None:
    model = Block().eval()
    fast = atb_torch.compile(model, torch.randn(3, 8))
    model.train()
    with torch.no_grad(), pytest.raises(atb.UnsupportedError, match="training mode"):
        fast(torch.randn(3, 8))


def test_exported_in_training_mode_is_refused() -> None:
    program = torch.export.export(Block().train(), (torch.randn(3, 8),), strict=False)
    with pytest.raises(atb.UnsupportedError, match="live dropout"):
        atb_torch.compile(program)


def test_eval_is_deterministic_and_fuses() -> None:
    model, x = Block().eval(), torch.randn(3, 8)
    fast = atb_torch.compile(model, x, threads=1)
    with torch.no_grad():
        first = fast(x)
        assert torch.equal(first, fast(x))
        torch.testing.assert_close(first, model(x))
    assert "fused_gate_up" in str(fast.graph)


def test_attention_dropout_is_refused() -> None:
    class Attention(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(x, x, x, dropout_p=0.1)

    with pytest.raises(atb.UnsupportedError, match=r"dropout_p = 0\.1"):
        atb_torch.compile(Attention().eval(), torch.randn(1, 2, 5, 4))

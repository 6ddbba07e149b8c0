# SPDX-License-Identifier: Apache-2.0
"""Lowerings of ATen operators into ATB's plain ones, a table a kind of operator."""

from atb_torch.lowering import attention, blocks, elementwise, indexing, linear, reductions, shapes  # noqa: F401  (they register)
from atb_torch.lowering.registry import TABLE

__all__ = ["TABLE"]

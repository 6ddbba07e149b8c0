# SPDX-License-Identifier: Apache-2.0
"""Calls of a `GraphOp` inside of what `torch.compile` traces: the block runs in ATB, as it does elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from atb_torch.graph_op import GraphOp


@torch.compiler.disable
def call_untraced(block: GraphOp, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The block's call, kept out of the trace: `atb_torch.compile` is what takes blocks and their modules as one."""
    return block._forward(args, kwargs)

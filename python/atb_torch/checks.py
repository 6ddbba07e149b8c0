# SPDX-License-Identifier: Apache-2.0
"""What is refused before anything is imported: each with what was found and what to do."""

from __future__ import annotations

import torch

from atb_torch.dtypes import NAMES
from atb_torch.errors import unsupported
from atb_torch.exporting import Call

_DTYPES = ", ".join(str(dtype).removeprefix("torch.") for dtype in NAMES if dtype is not torch.float64)


def check_module(model: torch.nn.Module) -> None:
    """`atb.UnsupportedError` for training mode, live dropout, and tensors that are elsewhere or of other dtypes."""
    for name, module in model.named_modules():
        if module.training and isinstance(module, torch.nn.modules.dropout._DropoutNd) and module.p > 0:
            unsupported(f"dropout is live in {name or 'the module'} (p = {module.p}); call .eval()")
    check_mode(model)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        _check_tensor(name, tensor)


def check_mode(model: torch.nn.Module) -> None:
    """`atb.UnsupportedError` for a module in training mode. GraphModules are what they were traced as."""
    if model.training and not isinstance(model, torch.fx.GraphModule):
        unsupported("the module is in training mode; call .eval()")


def check_arguments(call: Call) -> None:
    """`atb.UnsupportedError` for tensors that need gradients, are not on the CPU, or are of other dtypes."""
    for leaf in call.leaves:
        _check_tensor(leaf.name, leaf.tensor)
        if leaf.tensor.requires_grad and torch.is_grad_enabled():
            unsupported(f"{leaf.name} requires gradients, which ATB does not compute; use torch.no_grad() or .detach()")


def _check_tensor(name: str, tensor: torch.Tensor) -> None:
    if tensor.device.type == "meta":
        unsupported(f"{name} is on the meta device and has no data; load the weights first")
    if tensor.device.type != "cpu":
        unsupported(f"{name} is on {tensor.device}; ATB runs on the CPU: move the module and its inputs there")
    if tensor.layout is not torch.strided:
        unsupported(f"{name} has the layout {tensor.layout}; only dense tensors are supported")
    if tensor.dtype not in NAMES or tensor.dtype is torch.float64:
        unsupported(f"{name} is {tensor.dtype}; supported are {_DTYPES}")

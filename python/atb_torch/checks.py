# SPDX-License-Identifier: Apache-2.0
"""What is refused before anything is imported: each with what was found and what to do."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._subclasses.fake_tensor import FakeTensor

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
        check_tensor(name, tensor)


def check_mode(model: torch.nn.Module) -> None:
    """`atb.UnsupportedError` for a module in training mode. GraphModules are what they were traced as."""
    if model.training and not isinstance(model, torch.fx.GraphModule):
        unsupported("the module is in training mode; call .eval()")


def check_arguments(call: Call) -> None:
    """`atb.UnsupportedError` for tensors that need gradients, are not on the CPU, or are of other dtypes."""
    for leaf in call.leaves:
        check_tensor(leaf.name, leaf.tensor, gradients=True)


def check_unshared(number: int, tensors: Sequence[torch.Tensor]) -> None:
    """`atb.UnsupportedError` where an argument that the module writes to may share memory with another argument."""
    begin, end = _memory(tensors[number])
    for other, tensor in enumerate(tensors):
        first, last = _memory(tensor)
        if other != number and max(begin, first) < min(end, last):
            unsupported(
                f"the module writes to its tensor argument {number}, which shares memory with argument {other}: the "
                "write would be seen there; pass a clone"
            )


def _memory(tensor: torch.Tensor) -> tuple[int, int]:
    """First address and one behind the last; both equal for a tensor without elements."""
    if tensor.numel() == 0:
        return 0, 0
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + span * tensor.element_size()


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor whose memory holds its values: not one that is negated, or made, when it is read."""
    tensor = tensor.detach()
    if isinstance(tensor, FakeTensor):  # it has no memory
        return tensor
    return tensor.clone() if tensor._is_zerotensor() else tensor.resolve_conj().resolve_neg()


def check_tensor(name: str, tensor: torch.Tensor, gradients: bool = False, fake: bool = False) -> None:
    """`atb.UnsupportedError` for a tensor that is elsewhere, sparse or of another dtype.

    gradients: one that needs them is refused too. fake: one without data, as export passes, is let through.
    """
    if gradients and tensor.requires_grad and torch.is_grad_enabled():
        unsupported(f"{name} requires gradients, which ATB does not compute; use torch.no_grad() or .detach()")
    if tensor.device.type == "meta":
        unsupported(f"{name} is on the meta device and has no data; load the weights first")
    if tensor.device.type != "cpu":
        unsupported(f"{name} is on {tensor.device}; ATB runs on the CPU: move the module and its inputs there")
    without_data = isinstance(tensor, FakeTensor) and not fake
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or without_data:
        unsupported(f"{name} is inside of a transform as torch.func's and export's; call it outside")
    if tensor.is_nested:
        unsupported(f"{name} is a nested tensor; pass a padded one and a mask")
    if tensor.layout is not torch.strided:
        unsupported(f"{name} has the layout {tensor.layout}; only dense tensors are supported")
    if tensor.dtype not in NAMES or tensor.dtype is torch.float64:
        unsupported(f"{name} is {tensor.dtype}; supported are {_DTYPES}")

# SPDX-License-Identifier: Apache-2.0
"""Whether a program is right where a size is 1.

Export takes every dynamic size to be 2 or more, and what a module decides by `size == 1` leaves no trace in the
program. So the module runs twice without data, with the sizes in question 1 and with others, and both runs must call
the same operators with the same numbers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

# Operators that move or view elements or make them from nothing: how often they are called depends on sizes.
_MOVES = {
    "_reshape_alias", "_to_copy", "_unsafe_view", "alias", "arange", "as_strided", "cat", "clone", "copy_",
    "detach", "device", "empty", "empty_like", "empty_strided", "expand", "fill_", "full", "lift_fresh",
    "new_empty", "new_empty_strided", "ones", "permute", "scalar_tensor", "select", "slice", "split",
    "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unsqueeze", "view", "zeros",
}  # fmt: skip
# Matrix products are the same mathematics under each of their names.
_PRODUCTS = {"addmm": "mm", "baddbmm": "mm", "bmm": "mm", "mv": "mm", "dot": "mm"}


class _Calls(TorchDispatchMode):
    """Notes the operators of a run that compute, with their numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet = func._schema.name.split("::")[-1]
        if packet not in _MOVES:
            numbers = [arg for arg in args if isinstance(arg, (int, float, bool, str))]
            self.names.append((_PRODUCTS.get(packet, packet), numbers))
        return func(*args, **(kwargs or {}))


def same_at_one(module: torch.nn.Module, at_one: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Whether a module calls the same operators for tensors like `at_one` as for those like `others`."""
    return _calls(module, at_one) == _calls(module, others)


def _calls(module: torch.nn.Module, like: Sequence[torch.Tensor]) -> list[Any]:
    mode, calls = FakeTensorMode(allow_non_fake_inputs=True), _Calls()
    with unchanged(module), torch.no_grad(), mode:
        tensors = tuple(torch.empty(tensor.shape, dtype=tensor.dtype) for tensor in like)
        held = dict([*module.named_parameters(), *module.named_buffers()])
        fake = {name: mode.from_tensor(tensor) for name, tensor in held.items()}  # real ones would be written to
        with calls:
            outputs = torch.func.functional_call(module, fake, tensors)
    return [*calls.names, *(output.dim() for output in outputs)]


@contextlib.contextmanager
def unchanged(module: torch.nn.Module) -> Iterator[None]:
    """Puts back what a run assigns to the module or its parts, which would be tensors without data."""
    before = [(part, dict(part.__dict__), dict(part._buffers)) for part in module.modules()]
    try:
        yield
    finally:
        for part, attributes, buffers in before:
            part.__dict__.clear()
            part.__dict__.update(attributes)
            part._buffers.clear()
            part._buffers.update(buffers)

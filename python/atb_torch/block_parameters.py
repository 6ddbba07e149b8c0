# SPDX-License-Identifier: Apache-2.0
"""Parameters of a `GraphOp`: modules that hold them under their names, and their shapes, which are known later."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from atb.errors import InvalidArgumentError
from torch import nn

Declared = tuple[str, list[int], str, float]  # name, shape, how it starts, the scale of that


class Holder(nn.Module):
    """The parameters of one item, or the items of a branch."""


def place(root: nn.Module, path: str, module: nn.Module) -> None:
    """Makes `module` the submodule `path` of root, with holders on the way."""
    *way, last = path.split(".")
    parent = _holder(root, way)
    if hasattr(parent, last):
        raise InvalidArgumentError(f"[GraphOp] an item cannot be named {path!r}: a torch.nn.Module has that attribute")
    parent.add_module(last, module)


def declare(root: nn.Module, names: Iterable[str]) -> None:
    """Makes the parameters that root has not, without elements as long as their shapes are unknown."""
    with torch.inference_mode(False):  # else they would be inference tensors, which no optimizer can train
        for name in names:
            *way, last = name.split(".")
            holder = _holder(root, way)
            if last not in holder._parameters:
                holder.register_parameter(last, nn.Parameter(torch.empty(0)))


def _holder(root: nn.Module, way: Sequence[str]) -> nn.Module:
    module = root
    for name in way:
        if name not in module._modules:
            place(module, name, Holder())
        module = module.get_submodule(name)
    return module


def is_lazy(parameter: torch.Tensor) -> bool:
    """Whether a parameter has no shape yet."""
    return parameter.shape == (0,)


def materialize(root: nn.Module, declared: Iterable[Declared]) -> None:
    """Gives parameters without a shape theirs, and their first values."""
    with torch.inference_mode(False):  # a call may be inside of it; tensors made there do not count writes
        for name, shape, start, scale in declared:
            parameter = root.get_parameter(name)
            if is_lazy(parameter):
                parameter.data = _started(parameter, shape, start, scale)


def _started(like: torch.Tensor, shape: Sequence[int], start: str, scale: float) -> torch.Tensor:
    data = torch.empty(tuple(shape), dtype=like.dtype, device=like.device)
    if start == "zeros":
        return data.zero_()
    if start == "ones":
        return data.fill_(1)
    return data.uniform_(-scale, scale) if start == "uniform" else data.normal_(0, scale)


def known_shapes(root: nn.Module) -> dict[str, list[int]]:
    """The shapes of the parameters that have one."""
    parameters = root.named_parameters(remove_duplicate=False)  # a tied one has its shape under each name
    return {name: list(parameter.shape) for name, parameter in parameters if not is_lazy(parameter)}


def widths_to_try(shapes: Iterable[Sequence[int]]) -> list[int]:
    """Numbers of features that an input may have had where parameters have these shapes, the likely ones first."""
    extents = list(dict.fromkeys(extent for shape in shapes for extent in reversed(shape) if extent > 0))
    smaller = [width for extent in extents for width in _divisors(extent)]
    return list(dict.fromkeys([*extents, *smaller]))


def _divisors(number: int) -> list[int]:
    small = [i for i in range(1, math.isqrt(number) + 1) if number % i == 0]
    return sorted({number // i for i in small} | set(small), reverse=True)

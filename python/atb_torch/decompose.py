# SPDX-License-Identifier: Apache-2.0
"""Operators without a lowering, in terms of others: PyTorch's own definitions, one operator at a time."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from atb_torch.errors import quiet
from atb_torch.lowering import TABLE

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


@functools.cache
def _definitions() -> dict[Any, Any]:
    """PyTorch's definitions of operators that have no lowering here."""
    return {operator: made for operator, made in decomposition_table.items() if str(operator) not in TABLE}


def decompose(node: torch.fx.Node) -> torch.fx.GraphModule | None:
    """The call of `node` as a program over its tensor arguments, in the order of `tensor_arguments`; None if PyTorch
    defines it by itself, or only for some sizes.
    """
    operator = node.target
    if not isinstance(operator, torch._ops.OpOverload) or operator._schema.is_mutable:
        return None
    table = _definitions()
    if operator not in table and not operator.has_kernel_for_dispatch_key(_COMPOSITE):
        return None
    flat, spec = pytree.tree_flatten((node.args, node.kwargs))
    values = [value.meta.get("val") if isinstance(value, torch.fx.Node) else value for value in flat]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]

    def call(*given: torch.Tensor) -> Any:
        rest = iter(given)
        filled = [next(rest) if isinstance(value, torch.Tensor) else value for value in values]
        args, kwargs = pytree.tree_unflatten(filled, spec)
        return operator(*args, **kwargs)

    environment = tensors[0].fake_mode.shape_env if tensors else None
    known = len(environment.guards) if environment is not None else 0
    try:
        with torch.no_grad(), quiet():
            program = make_fx(call, decomposition_table=table)(*tensors)
    except Exception:  # whatever goes wrong in there, the operator stays whole
        return None
    decided = environment is not None and len(environment.guards) > known  # right for some sizes only
    return None if decided else program


def tensor_arguments(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The tensors that a call reads, one for each time it names them."""
    flat, _ = pytree.tree_flatten((node.args, node.kwargs))
    return [
        value for value in flat if isinstance(value, torch.fx.Node) and isinstance(value.meta.get("val"), torch.Tensor)
    ]

# SPDX-License-Identifier: Apache-2.0
"""Functions that `torch.fx.wrap` keeps whole in a GraphModule: as operators that export does not look into."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from atb_torch.errors import unsupported

_LIBRARY = torch.library.Library("atb_kept", "FRAGMENT")

FUNCTIONS: dict[Any, Callable[..., Any]] = {}
"""The function of each operator made here."""


def _is_users(target: Any) -> bool:
    """Whether a target is a plain Python function that is not PyTorch's or Python's own."""
    module = getattr(target, "__module__", None) or ""
    owned = module.split(".")[0] in ("torch", "_operator", "operator", "builtins", "math", "einops")
    return callable(target) and hasattr(target, "__code__") and not owned


def keep_functions(model: torch.nn.Module, tensors: Sequence[Any]) -> torch.nn.Module:
    """A copy of a GraphModule whose wrapped functions are operators of their own; other modules are returned as is.

    tensors: the arguments of a call, in the order of the graph's placeholders; only their types matter.
    """
    if not isinstance(model, torch.fx.GraphModule) or not any(
        node.op == "call_function" and _is_users(node.target) for node in model.graph.nodes
    ):
        return model
    graph = copy.deepcopy(model.graph)
    kept = torch.fx.GraphModule(model, graph)
    FakeTensorProp(kept, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*tensors)  # parameters are real
    for node in graph.nodes:
        if node.op == "call_function" and _is_users(node.target):
            _keep(node)
    kept.recompile()
    kept.train(model.training)
    return kept


def _keep(node: torch.fx.Node) -> None:
    """Makes a node call an operator over its tensor arguments; the others become part of the operator."""
    function = node.target
    flat, spec = torch.utils._pytree.tree_flatten((node.args, node.kwargs))
    operands = [value for value in flat if isinstance(value, torch.fx.Node)]
    if not all(isinstance(operand.meta.get("val"), torch.Tensor) for operand in operands):
        unsupported(f"{function.__qualname__}: an argument is computed but no tensor")

    def call(*tensors: torch.Tensor) -> Any:
        rest = iter(tensors)
        filled = [next(rest) if isinstance(value, torch.fx.Node) else value for value in flat]
        args, kwargs = torch.utils._pytree.tree_unflatten(filled, spec)
        return _apart(function(*args, **kwargs), tensors)

    result = node.meta.get("val")
    returns = "Tensor"
    if isinstance(result, (list, tuple)):
        returns = f"({', '.join('Tensor' for _ in result)})"
    elif not isinstance(result, torch.Tensor):
        unsupported(
            f"{function.__qualname__} returns a {type(result).__name__}; only tensors and tuples of them may be"
        )
    name = f"{function.__name__}_{len(FUNCTIONS)}"
    _LIBRARY.define(f"{name}({', '.join(f'Tensor x{i}' for i in range(len(operands)))}) -> {returns}")
    _LIBRARY.impl(name, call, "CompositeExplicitAutograd")
    torch.library.register_fake(f"atb_kept::{name}", call, lib=_LIBRARY)
    operator = getattr(torch.ops.atb_kept, name).default
    FUNCTIONS[operator] = function
    node.target, node.args, node.kwargs = operator, tuple(operands), {}
    node.meta.pop("is_wrapped", None)  # an operator needs no wrap() in the generated code


def _apart(result: Any, operands: Sequence[torch.Tensor]) -> Any:
    """An operator may not return its operand; a function may."""
    if isinstance(result, (list, tuple)):
        return tuple(_apart(part, operands) for part in result)
    return result.clone() if any(result is operand for operand in operands) else result

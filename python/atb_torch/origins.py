# SPDX-License-Identifier: Apache-2.0
"""What the nodes of an imported graph were called in PyTorch, for users' patterns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import atb
import torch
from atb._core import BuilderValue


@dataclass
class _Whole:
    """A user's operator that PyTorch defines by others: the nodes of its definition, its operands and results."""

    target: Any
    nodes: list[str]
    inputs: list[str]
    outputs: list[str]


class Origins:
    """Filled while a graph is built; see `atb.Graph.origins`."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._known: dict[str, Any] = {}
        self._wholes: list[_Whole] = []

    def set_opaque(self, name: str, origin: Any) -> None:
        """An operator that stays whole."""
        self._known[name] = origin

    def set_results(self, target: Any, made: Sequence[str], values: Iterable[BuilderValue]) -> None:
        """Of the nodes made for a call, those that give its results answer for it.

        made: their names. A result that was there before, as of a dropout that does nothing, is no node of this call.
        """
        for value in values:
            if value.name in made:
                self._known[value.name] = target

    def set_whole(
        self, target: Any, made: Sequence[str], operands: Iterable[BuilderValue], values: Iterable[BuilderValue]
    ) -> None:
        """The same for a user's operator, which a pattern must find with its own operands: it becomes one node."""
        inputs, outputs = ([*dict.fromkeys(value.name for value in given)] for given in (operands, values))
        if all(name in made for name in outputs):
            self._wholes.append(_Whole(target, list(made), inputs, outputs))

    def give_to(self, graph: atb.Graph) -> None:
        """Sets the graph's origins, and puts users' operators into one node each, which has the rest as definition."""
        for whole in self._wholes:
            name, reason = graph._core.fuse(whole.nodes, operator_name(whole.target), "", whole.inputs, whole.outputs)
            if reason is None:
                self._known[name] = whole.target
        graph.origins = self._known


def operator_name(target: Any) -> str:
    """What an opaque node calls an operator: "my.op" for its overload "default"."""
    return str(target).removesuffix(".default")


def is_users(target: Any) -> bool:
    """Whether an operator is none of PyTorch's own."""
    return isinstance(target, torch._ops.OpOverload) and target.namespace not in ("aten", "prims", "prim")

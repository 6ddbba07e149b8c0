# SPDX-License-Identifier: Apache-2.0
"""The table of lowerings: ATen operator -> function(ctx, *args, **kwargs) -> value or list of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Lowering = Callable[..., Any]

TABLE: dict[str, Lowering] = {}


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Registers a function for operators such as "add.Tensor" of ATen.

    The function gets the context, then the operator's arguments as ATen's schema names and orders them: tensors as
    BuilderValue, sizes as dims. It raises `Refused` for forms that it cannot express.
    """

    def register(function: Lowering) -> Lowering:
        for name in names:
            key = f"aten.{name}"
            assert key not in TABLE, f"two lowerings of {key}"
            TABLE[key] = function
        return function

    return register

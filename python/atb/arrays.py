# SPDX-License-Identifier: Apache-2.0
"""Arrays of others on their way into the core."""

from __future__ import annotations

from typing import Any


def resolved(array: Any) -> Any:
    """The array, or a copy that holds its values: torch only marks some tensors as negated, which DLPack cannot tell.

    Such is the imaginary part of a conjugate. Anything but a torch tensor is returned as it is.
    """
    is_neg = getattr(array, "is_neg", None)
    if is_neg is None or not callable(is_neg):
        return array
    return array.resolve_neg() if is_neg() else array


def resolved_all(arrays: Any) -> Any:
    """`resolved` of what a kernel returns: one array, or a list or tuple of them."""
    return type(arrays)(map(resolved, arrays)) if type(arrays) in (list, tuple) else resolved(arrays)

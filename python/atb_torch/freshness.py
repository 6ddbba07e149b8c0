# SPDX-License-Identifier: Apache-2.0
"""Whether a module still is what a program was made of: weights are packed once, and users may change them."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch


class Snapshot:
    """The parameters, buffers and submodules of a module as they are now. Cheap to compare: no data is read."""

    def __init__(self, module: torch.nn.Module, written: Iterable[torch.Tensor] = ()) -> None:
        """written: buffers that the module itself changes, which programs take as they are at each call."""
        left_out = {id(tensor) for tensor in written}
        self._tensors: list[tuple[dict[str, Any], str, weakref.ref[torch.Tensor], int, int]] = []
        self._parts: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for part in module.modules():
            self._parts.append((part._modules, dict(part._modules)))
            for owner in (part._parameters, part._buffers):
                self._tensors += [
                    (owner, name, weakref.ref(tensor), _version(tensor), _address(tensor))
                    for name, tensor in owner.items()
                    if tensor is not None and not tensor.is_meta and id(tensor) not in left_out
                ]

    def holds(self) -> bool:
        """Whether nothing was replaced, assigned, moved or written to since; what was released does not count."""
        return all(
            _is_same(owner.get(name), tensor(), version, address)
            for owner, name, tensor, version, address in self._tensors
        ) and all(now == then for now, then in self._parts)


def _is_same(now: torch.Tensor | None, then: torch.Tensor | None, version: int, address: int) -> bool:
    if now is None:
        return False
    return now.is_meta or (now is then and _version(now) == version and _address(now) == address)


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version  # those of inference mode do not count writes


def _address(tensor: torch.Tensor) -> int:
    """Where the data lies: `.to()` and `.data =` exchange it within the same tensor."""
    return tensor.data_ptr()

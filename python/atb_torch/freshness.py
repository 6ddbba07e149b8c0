# SPDX-License-Identifier: Apache-2.0
"""Whether a module still is what a program was made of: weights are packed once, and users may change them."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

_INTERNAL = frozenset(vars(torch.nn.Module())) - {"training"}
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
# What a module decides by, as `self.enabled`, and functions put in the place of methods.
_PLAIN = (bool, int, float, complex, str, type(None), torch.dtype, types.FunctionType, types.MethodType)

_GONE = object()


class Snapshot:
    """The parameters, buffers, submodules, hooks and plain attributes of a module as they are now.

    Cheap to compare: no data is read.
    """

    def __init__(self, module: torch.nn.Module, written: Iterable[torch.Tensor] = (), *, ask: bool = True) -> None:
        """written: buffers that the module itself changes, which programs take as they are at each call.

        Parts with `program_key()`, as blocks with plugins, say themselves what programs depend on, if one is to `ask`.
        """
        left_out = {id(tensor) for tensor in written}
        self._tensors: list[tuple[dict[str, Any], str, weakref.ref[torch.Tensor], int, int]] = []
        self._parts: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self._settings: list[tuple[dict[str, Any], str, Any]] = []
        self._asked: list[tuple[Callable[[], Any], Any]] = []
        self._counts: list[tuple[dict[str, Any], int]] = []  # of attributes: one that is new may hide a method
        for part in module.modules():
            self._parts.append((part._modules, dict(part._modules)))
            self._parts += [(hooks, dict(hooks)) for hooks in (getattr(part, name) for name in _HOOKS)]
            if not hasattr(part, "program_key"):
                self._note_attributes(part)
            elif ask:
                self._asked.append((part.program_key, part.program_key()))
            for owner in (part._parameters, part._buffers):
                self._tensors += [
                    (owner, name, weakref.ref(tensor), _version(tensor), _address(tensor))
                    for name, tensor in owner.items()
                    if tensor is not None and not tensor.is_meta and id(tensor) not in left_out
                ]

    def _note_attributes(self, part: torch.nn.Module) -> None:
        self._counts.append((vars(part), len(vars(part))))
        for name, value in vars(part).items():
            if name not in _INTERNAL and _is_plain(value):
                self._settings.append((vars(part), name, _copied(value)))

    def holds(self) -> bool:
        """Whether nothing was replaced, assigned, moved or written to since; what was released does not count."""
        return (
            all(
                _is_same(owner.get(name), tensor(), version, address)
                for owner, name, tensor, version, address in self._tensors
            )
            and all(now == then for now, then in self._parts)
            and all(key() == then for key, then in self._asked)
            and all(len(owner) == count for owner, count in self._counts)
            and all(
                (now := owner.get(name, _GONE)) is then or _is_equal(now, then) for owner, name, then in self._settings
            )
        )


def _is_plain(value: Any) -> bool:
    """Whether a value can be compared by what it is, or is a container of such values."""
    if type(value) in (list, tuple, set, frozenset):
        return all(type(item) in _PLAIN for item in value)
    if type(value) is dict:
        return all(type(item) in _PLAIN for pair in value.items() for item in pair)
    return type(value) in _PLAIN


def _copied(value: Any) -> Any:
    return value.copy() if type(value) in (list, set, dict) else value


def _is_equal(now: Any, then: Any) -> bool:
    return type(now) is type(then) and _is_plain(now) and bool(now == then)


def _is_same(now: torch.Tensor | None, then: torch.Tensor | None, version: int, address: int) -> bool:
    if now is None:
        return False
    return (now is then and _version(now) == version and _address(now) == address) or now.is_meta


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version  # those of inference mode do not count writes


def _address(tensor: torch.Tensor) -> int:
    """Where the data lies: `.to()` and `.data =` exchange it within the same tensor."""
    return tensor.data_ptr()

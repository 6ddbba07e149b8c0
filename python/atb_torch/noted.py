# SPDX-License-Identifier: Apache-2.0
"""Values of attributes as they were once: numbers and text, tensors, and containers of them, however deep."""

from __future__ import annotations

import enum
import numbers
import operator
import sys
import types
from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

_DEPTH = 8  # of containers in one another
_COUNT = 20_000  # values in containers that hold more than atoms, for a whole module

# What a module decides by, as `self.enabled`, and functions put in the place of methods.
_ATOMS = frozenset(
    (
        *(bool, int, float, complex, str, bytes, type(None), type(...), type, range, torch.Size),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format),
        *(types.FunctionType, types.MethodType, types.BuiltinFunctionType),
    )
)


def is_atom(value: Any) -> bool:
    """Whether a value cannot change by itself and is compared by `==`."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is slice:
        return all(type(bound) in (int, type(None)) for bound in (value.start, value.stop, value.step))
    if isinstance(value, (torch.Tensor, list, tuple, dict, torch.nn.Module)):
        return False
    numpy = sys.modules.get("numpy")
    return isinstance(value, (numbers.Number, enum.Enum)) or (numpy is not None and isinstance(value, numpy.generic))


def is_equal(now: Any, then: Any) -> bool:
    """Whether an atom is another one of the same type and value: 1, 1.0 and True are three."""
    return type(now) is type(then) and is_atom(now) and bool(now == then)


class Noted:
    """A value that is not looked at: whatever comes in its place holds."""

    def holds(self, now: Any) -> bool:
        """Whether the value in the same place now is what it was."""
        return True


_UNSEEN = Noted()


class _Atom(Noted):
    def __init__(self, value: Any) -> None:
        self._value = value

    def holds(self, now: Any) -> bool:
        return now is self._value or is_equal(now, self._value)


class _Same(Noted):
    """A module, or a tensor that its module writes to: only another one is a change."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def holds(self, now: Any) -> bool:
        return now is self._value or isinstance(now, FakeTensor)


class _Tensor(Noted):
    """A tensor by identity, version and address; one of inference mode has no version, and a copy is kept."""

    def __init__(self, value: torch.Tensor) -> None:
        self._value = value
        self._copy = value.detach().clone() if value.is_inference() else None
        self._state = self._state_of(value)

    def holds(self, now: Any) -> bool:
        if not isinstance(now, torch.Tensor):
            return False
        if now.is_meta or isinstance(now, FakeTensor):  # released, or left behind by a trace
            return True
        if now is not self._value or self._state_of(now) != self._state:
            return False
        return self._copy is None or (now.dtype == self._copy.dtype and torch.equal(_bits(now), _bits(self._copy)))

    @staticmethod
    def _state_of(tensor: torch.Tensor) -> tuple[int, int]:
        address = tensor.data_ptr() if tensor.layout is torch.strided and not tensor.is_nested else 0
        return -1 if tensor.is_inference() else tensor._version, address


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Numbers that are equal where the bits are: NaN is itself, and -0 is not 0."""
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    wanted = integers.get(tensor.element_size())
    return tensor.detach() if wanted is None or tensor.layout is not torch.strided else tensor.detach().view(wanted)


class _Set(Noted):
    def __init__(self, value: Any) -> None:
        self._type, self._copy = type(value), set(value)

    def holds(self, now: Any) -> bool:
        return type(now) is self._type and bool(now == self._copy)


class _Flat(Noted):
    """A container of atoms alone, of any length: most are the same objects as before."""

    def __init__(self, value: Any, items: list[Any]) -> None:
        self._type, self._items = type(value), items

    def holds(self, now: Any) -> bool:
        if type(now) is not self._type or len(items := _items(now)) != len(self._items):
            return False
        return all(map(operator.is_, items, self._items)) or all(
            one is other or is_equal(one, other) for one, other in zip(items, self._items, strict=True)
        )


class _Deep(Noted):
    def __init__(self, value: Any, inner: list[Noted]) -> None:
        self._type, self._inner = type(value), inner

    def holds(self, now: Any) -> bool:
        if type(now) is not self._type or len(items := _items(now)) != len(self._inner):
            return False
        return all(noted.holds(item) for noted, item in zip(self._inner, items, strict=True))


def _items(value: Any) -> list[Any]:
    """What a container holds; keys and values of a dict."""
    return list(chain.from_iterable(value.items()) if isinstance(value, dict) else value)


class Notes:
    """Notes the values of one module's attributes."""

    def __init__(self, module: torch.nn.Module, written: Iterable[torch.Tensor] = ()) -> None:
        """written: tensors that the module changes itself; only their replacement is a change."""
        self.modules = list(module.modules())
        """Its parts, and those that were found in plain containers so far."""
        self._known = {id(part) for part in self.modules}
        self._written = {tensor.data_ptr() for tensor in written}
        self._left = _COUNT

    def of(self, value: Any, depth: int = _DEPTH) -> Noted:
        """A value as it is now. Objects of a class of one's own are not looked at, nor what is too deep or too much."""
        if is_atom(value):
            return _Atom(value)
        if isinstance(value, torch.Tensor):
            return self._of_tensor(value)
        if isinstance(value, torch.nn.Module):
            self._add(value)
            return _Same(value)
        if isinstance(value, (set, frozenset)):
            return _Set(value) if all(map(is_atom, value)) else _UNSEEN
        if not isinstance(value, (list, tuple, dict)):
            return _UNSEEN
        items = _items(value)
        if all(map(is_atom, items)):
            return _Flat(value, items)
        self._left -= len(items)
        if depth == 0 or self._left < 0:
            return _UNSEEN
        return _Deep(value, [self.of(item, depth - 1) for item in items])

    def _of_tensor(self, tensor: torch.Tensor) -> Noted:
        if isinstance(tensor, FakeTensor) or tensor.is_meta:
            return _UNSEEN
        plain = tensor.layout is torch.strided and not tensor.is_nested
        return _Same(tensor) if plain and tensor.data_ptr() in self._written else _Tensor(tensor)

    def _add(self, module: torch.nn.Module) -> None:
        for part in module.modules():
            if id(part) not in self._known:
                self._known.add(id(part))
                self.modules.append(part)

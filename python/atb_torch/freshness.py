# SPDX-License-Identifier: Apache-2.0
"""Whether a module still is what a program was made of: weights are packed once, and users may change them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from atb_torch.noted import Noted, Notes, is_atom, is_equal

_INTERNAL = frozenset(vars(torch.nn.Module())) - {"training"}
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")

_GONE = object()


class Snapshot:
    """The parameters, buffers, submodules, hooks and plain attributes of a module as they are now.

    Cheap to compare: no data is read, except that of tensors made in inference mode, which do not count writes.
    """

    def __init__(self, module: torch.nn.Module, written: Iterable[torch.Tensor] = (), *, ask: bool = True) -> None:
        """written: tensors that the module itself changes, which programs take as they are at each call.

        Parts with `program_key()`, as blocks with plugins, say themselves what programs depend on, if one is to `ask`.
        """
        written = list(written)
        left_out = {id(tensor) for tensor in written}
        self._tensors: list[tuple[dict[str, Any], str, weakref.ref[torch.Tensor], int, int]] = []
        self._parts: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self._settings: list[tuple[dict[str, Any], str, Any]] = []
        self._containers: list[tuple[dict[str, Any], str, Noted]] = []  # and tensors that are no buffers
        self._asked: list[tuple[Callable[[], Any], Any]] = []
        self._counts: list[tuple[dict[str, Any], int]] = []  # of attributes: one that is new may hide a method
        notes = Notes(module, written)
        for part in notes.modules:  # grows by those in plain lists
            self._parts.append((part._modules, dict(part._modules)))
            self._parts += [(hooks, dict(hooks)) for hooks in (getattr(part, name) for name in _HOOKS)]
            if not hasattr(part, "program_key"):
                self._note_attributes(part, notes)
            elif ask:
                self._asked.append((part.program_key, part.program_key()))
            for owner in (part._parameters, part._buffers):
                for name, tensor in owner.items():
                    if tensor is not None and not tensor.is_meta and id(tensor) not in left_out:
                        self._note_tensor(owner, name, tensor, notes)

    def _note_tensor(self, owner: dict[str, Any], name: str, tensor: torch.Tensor, notes: Notes) -> None:
        if tensor.is_inference():
            self._containers.append((owner, name, notes.of(tensor)))
        else:
            self._tensors.append((owner, name, weakref.ref(tensor), tensor._version, tensor.data_ptr()))

    def _note_attributes(self, part: torch.nn.Module, notes: Notes) -> None:
        self._counts.append((vars(part), len(vars(part))))
        for name, value in vars(part).items():
            if name in _INTERNAL:
                continue
            if is_atom(value):
                self._settings.append((vars(part), name, value))
            else:
                self._containers.append((vars(part), name, notes.of(value)))

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
                (now := owner.get(name, _GONE)) is then or is_equal(now, then) for owner, name, then in self._settings
            )
            and all(noted.holds(owner.get(name, _GONE)) for owner, name, noted in self._containers)
        )


def _is_same(now: torch.Tensor | None, then: torch.Tensor | None, version: int, address: int) -> bool:
    """The address is where the data lies: `.to()` and `.data =` exchange it within the same tensor."""
    if now is None or then is None:  # set to None, or another one by now
        return now is not None and now.is_meta
    if now is not then or now.is_inference():
        return now.is_meta
    return (now._version == version and now.data_ptr() == address) or now.is_meta

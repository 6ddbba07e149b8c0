# SPDX-License-Identifier: Apache-2.0
"""Caches of compiled modules: where a module keeps the one that its blocks are called with, and calls that append."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from atb.errors import FailedPreconditionError, InvalidArgumentError, UnsupportedError

from atb_torch.errors import unsupported
from atb_torch.kv_cache import KVCache
from atb_torch.plugins import continuing

if TYPE_CHECKING:
    import atb

    from atb_torch.context import Cached
    from atb_torch.exporting import Call
    from atb_torch.importer import Imported


@dataclass(frozen=True)
class Home:
    """Where a call finds its cache: the number of an argument that is no tensor, or an attribute of a module."""

    argument: int = -1
    module: str = ""
    attribute: str = ""

    def get(self, model: torch.nn.Module, call: Call) -> KVCache:
        """The cache of a call. Raises `atb.InvalidArgumentError` where there is none any more."""
        if self.argument >= 0:
            cache = call.constants[self.argument]
        else:
            cache = getattr(model.get_submodule(self.module), self.attribute, None)
        if not isinstance(cache, KVCache):
            raise InvalidArgumentError(f"[kv] {self} is a {type(cache).__name__}; expected an atb_torch.KVCache")
        return cache

    def __str__(self) -> str:
        if self.argument >= 0:
            return "the cache among the arguments"
        return f"the attribute {f'{self.module}.' if self.module else ''}{self.attribute}"


def find_home(model: torch.nn.Module, call: Call, caches: Sequence[KVCache]) -> Home | None:
    """Where the cache is that blocks were called with; None where they were called with none.

    Raises `atb.UnsupportedError` for several caches, and for one that is neither an argument nor an attribute.
    """
    different = {id(cache): cache for cache in caches}
    if not different:
        return None
    if len(different) > 1:
        unsupported(f"the module calls its blocks with {len(different)} caches; a compiled module takes one")
    cache = caches[0]
    for number, constant in enumerate(call.constants):
        if constant is cache:
            return Home(argument=number)
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if value is cache:
                return Home(module=path, attribute=name)
    raise UnsupportedError("[atb_torch] the module's KVCache is neither an argument nor an attribute; make it one")


def tokens_of(imported: Imported) -> tuple[int, int] | int:
    """Where the tokens of a cached call are counted: (tensor of the call, axis), or their number where it is fixed."""
    tokens = imported.cached[0].tokens
    if isinstance(tokens, int) or not imported.placed:
        return tokens if isinstance(tokens, int) else 0
    for number, info in zip(imported.arguments, imported.graph.inputs, strict=False):
        extents = [extent.strip() for extent in info.shape.strip("[]").split(",")]
        if tokens in extents:
            return number, extents.index(tokens)
    raise UnsupportedError(f"[atb_torch] blocks with a cache take {tokens} tokens, which is no size of an input")


@dataclass(frozen=True)
class CachedCall:
    """How a compiled graph is called whose attentions append to a cache, slot by slot in the order of `attentions`."""

    home: Home
    attentions: list[Cached]
    tokens: tuple[int, int] | int  # tokens of a call: an axis of one of the call's tensors, or a number
    placed: bool  # the graph's last input are positions behind what the cache holds

    def run(
        self, compiled: atb.CompiledGraph, cache: KVCache, tensors: Sequence[torch.Tensor], arrays: Sequence[Any]
    ) -> list[Any]:
        """The graph's results; if it raises, the cache is as it was."""
        slots = self._slots(cache)
        past = cache.length_of(slots)
        given = list(arrays)
        if self.placed:
            tokens = self.tokens if isinstance(self.tokens, int) else tensors[self.tokens[0]].shape[self.tokens[1]]
            given.append(torch.arange(tokens) + past)
        with continuing(past):
            return list(cache.run(compiled, slots, *given))

    def _slots(self, cache: KVCache) -> list[int]:
        slots: list[int] = []
        for block in dict.fromkeys(attention.block for attention in self.attentions):
            own = [attention for attention in self.attentions if attention.block is block]
            sizes = {(attention.heads, attention.features) for attention in own}
            if len(sizes) > 1:
                raise FailedPreconditionError(f"[kv] {own[0].scope}: attentions with different heads: {sorted(sizes)}")
            slots += cache.slots_of(block, [attention.scope for attention in own], *sizes.pop(), where=own[0].scope)
        return slots

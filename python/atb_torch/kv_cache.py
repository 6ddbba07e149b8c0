# SPDX-License-Identifier: Apache-2.0
"""`KVCache`: the keys and values of a model's attention layers, so that a call computes its new tokens only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from atb import _core
from atb.errors import FailedPreconditionError, InvalidArgumentError
from atb.generation import as_int
from atb.graph import CompiledGraph

from atb_torch.dtypes import NAMES


class KVCache:
    """Keys and values of up to `num_layers` attention layers; given to a `GraphOp` as `kv_cache`.

    A layer's slot is (cache, GraphOp): the first GraphOp that is called with a cache takes its first slot, the next one
    the second, and so on. Each call appends its tokens at its slot's length, and its queries see what the slot holds.
    The batch size is that of the first call until `reset()`. Memory is taken as tokens come.

    A call that raises leaves its own slot as it was. Layers that were called before it have appended already:
    `cache.truncate(cache.length)` brings all to one length again.

    Threads: one call at a time; a second one during it raises `atb.FailedPreconditionError`.
    """

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        head_dim: int,
        max_tokens: int,
        dtype: torch.dtype | str = torch.float32,
    ) -> None:
        """An empty cache.

        num_layers: slots. num_heads: heads of keys and values (`num_kv_heads` of the attention where it has fewer than
            query heads). head_dim: features of a head. max_tokens: the longest sequence.
        dtype: what keys and values are kept in, torch.float32 or torch.bfloat16 (rounded before every use, so results
            do not depend on how the tokens were cut into calls); halves are computed in float32 anyway.
        """
        self._num_layers = as_int(num_layers, "num_layers", "kv")
        self._num_heads = as_int(num_heads, "num_heads", "kv")
        self._head_dim = as_int(head_dim, "head_dim", "kv")
        self._max_tokens = as_int(max_tokens, "max_tokens", "kv")
        self.dtype_name = dtype if isinstance(dtype, str) else NAMES.get(dtype, str(dtype))
        """The dtype as ATB calls it: "f32" or "bf16"."""
        self._core = _core.KVCache(self._num_layers, self._num_heads, self._head_dim, self._max_tokens, self.dtype_name)
        self._owners: dict[int, tuple[object, list[int]]] = {}  # by id of the GraphOp, which is kept alive: its slots
        self._taken = 0

    num_layers = property(lambda self: self._num_layers, doc="Slots.")
    num_heads = property(lambda self: self._num_heads, doc="Heads of keys and values.")
    head_dim = property(lambda self: self._head_dim, doc="Features of a head.")
    max_tokens = property(lambda self: self._max_tokens, doc="The longest sequence.")

    @property
    def length(self) -> int:
        """Tokens that every slot in use holds."""
        return min((self._core.length(slot) for slot in range(self._taken)), default=0)

    @property
    def batch_size(self) -> int | None:
        """Sequences, fixed by the first call; None before."""
        return self._core.batch or None

    @property
    def blocks_in_use(self) -> int:
        """Blocks of memory that this cache holds; one that a fork shares counts in both."""
        return self._core.blocks_in_use

    @property
    def shared_blocks(self) -> int:
        """Those of them that are shared with forks and will be copied when written."""
        return self._core.shared_blocks

    def truncate(self, n: int) -> None:
        """Every slot keeps its first `n` tokens at most. Raises `atb.InvalidArgumentError` beyond the longest slot."""
        self._core.truncate(as_int(n, "n", "kv"))

    def reset(self) -> None:
        """Forgets all tokens, the batch size, and which GraphOp has which slot."""
        self._core.reset()
        self._owners.clear()
        self._taken = 0

    def fork(self) -> KVCache:
        """A cache with the same tokens for the same GraphOps; each goes on alone.

        Blocks are shared, and copied when one of the two writes to them.
        """
        return self._twin(self._core.fork(), {})

    def empty(self) -> KVCache:
        """Another one of the same sizes, which holds nothing."""
        return KVCache(self._num_layers, self._num_heads, self._head_dim, self._max_tokens, self.dtype_name)

    def __len__(self) -> int:
        return self.length

    def __bool__(self) -> bool:
        return True  # an empty cache is a cache too

    def __deepcopy__(self, memo: dict[int, Any]) -> KVCache:
        """As `fork()`. Slots of GraphOps that are part of the same copy belong to their copies."""
        return self._twin(self._core.fork(), memo)

    def __copy__(self) -> KVCache:
        return self.fork()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._core.blocks_in_use > 0:
            raise FailedPreconditionError(
                "[kv] a cache that holds tokens is not saved; reset() it first, or save the state_dict of the model"
            )
        return KVCache, (self._num_layers, self._num_heads, self._head_dim, self._max_tokens, self.dtype_name)

    def __repr__(self) -> str:
        shape = f"num_layers={self._num_layers}, num_heads={self._num_heads}, head_dim={self._head_dim}"
        return f"KVCache({shape}, length={self.length} of {self._max_tokens}, dtype={self.dtype_name})"

    def slots_of(
        self, owner: object, scopes: Sequence[str], num_heads: int, head_dim: int, where: str = "GraphOp"
    ) -> list[int]:
        """The slots of a GraphOp, one for each of its cached attentions; taken at the first call.

        num_heads, head_dim: of the attention's keys. Raises `atb.InvalidArgumentError` where they are not the cache's,
        or no slot is left; `where` names the GraphOp.
        """
        if (num_heads, head_dim) != (self._num_heads, self._head_dim):
            raise InvalidArgumentError(
                f"[kv] {where}: the attention has num_heads={num_heads} (of keys), head_dim={head_dim}, the cache "
                f"num_heads={self._num_heads}, head_dim={self._head_dim}; make the cache with the attention's"
            )
        if id(owner) in self._owners:
            return self._owners[id(owner)][1]
        if self._taken + len(scopes) > self._num_layers:
            raise InvalidArgumentError(
                f"[kv] {where}: needs {len(scopes)} of the cache's layers, {self._taken} of num_layers="
                f"{self._num_layers} belong to other GraphOps; make it larger, or reset() it before another model"
            )
        slots = list(range(self._taken, self._taken + len(scopes)))
        self._owners[id(owner)] = (owner, slots)
        self._taken += len(scopes)
        return slots

    def first_slot(self, owner: object) -> int:
        """The first slot of a GraphOp, or the one that it would take."""
        return self._owners[id(owner)][1][0] if id(owner) in self._owners else self._taken

    def held_by(self, owner: object) -> int:
        """Tokens that the slots of a GraphOp hold; 0 for one that has none yet."""
        return self.length_of(self._owners[id(owner)][1]) if id(owner) in self._owners else 0

    def length_of(self, slots: Sequence[int]) -> int:
        """Tokens that these slots hold. Raises `atb.FailedPreconditionError` where they differ."""
        lengths = [self._core.length(slot) for slot in slots]
        if len(set(lengths)) > 1:
            raise FailedPreconditionError(
                f"[kv] the layers hold {lengths} tokens; truncate({min(lengths)}) the cache so that they agree"
            )
        return lengths[0]

    def run(self, compiled: CompiledGraph, slots: Sequence[int], *arrays: Any) -> list[_core.Tensor]:
        """Calls a graph whose cached attentions append to these slots; if it raises, they stay as they were."""
        return compiled.run_cached(self._core, slots, *arrays)

    def _twin(self, core: _core.KVCache, copies: dict[int, Any]) -> KVCache:
        twin = KVCache.__new__(KVCache)
        twin.__dict__.update(self.__dict__)
        twin._core = core
        owners = [(copies.get(id(owner), owner), slots) for owner, slots in self._owners.values()]
        twin._owners = {id(owner): (owner, list(slots)) for owner, slots in owners}
        return twin

# SPDX-License-Identifier: Apache-2.0
"""`ForwardEngine`: the requests of the native engine, computed by calls of a forward with a KVCache."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from atb import _core
from atb.errors import InvalidArgumentError, UnsupportedError

from atb_torch.kv_cache import KVCache

Forward = Callable[[torch.Tensor, KVCache], torch.Tensor]  # ids [B, T] behind a cache -> logits [B, T, V] or [B, V]


@dataclass
class _Request:
    """A row: its prompt and what was generated."""

    ids: list[int]
    prompt: int
    limit: int  # of new tokens
    sampler: Any
    delivered: int = 0  # new tokens that the caller has
    ended: bool = False

    @property
    def new(self) -> int:
        return len(self.ids) - self.prompt


@dataclass
class _Group:
    """Rows of one length, which share a cache."""

    rows: list[_Request]
    cache: KVCache
    read: int = 0  # tokens of each row that the cache holds

    def unread(self) -> torch.Tensor:
        return torch.tensor([row.ids[self.read :] for row in self.rows])


@dataclass
class ForwardEngine:
    """Requests as `atb._core.Engine` has them, for `atb_torch.generation`.

    Rows whose prompts are of one length run together, one forward a token; a row that has ended runs on until its group
    has, as in transformers, and what it makes is dropped. Threads: one forward at a time.
    """

    forward: Forward
    new_cache: Callable[[], KVCache]
    context: int
    """The longest sequence."""
    _requests: dict[int, _Request] = field(default_factory=dict)
    _groups: dict[int, _Group] = field(default_factory=dict)  # by request
    _count: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def submit(
        self, prompt_ids: Sequence[int], *, max_new_tokens: int, stop_token_ids: Any, ignore_eos: bool, **sampling: Any
    ) -> int:
        """Queues a prompt. What ends a row is its caller's matter, but for its length."""
        if not prompt_ids:
            raise InvalidArgumentError("[generate] the prompt is empty: give at least one token")
        if len(prompt_ids) > self.context:
            raise InvalidArgumentError(
                f"[generate] the prompt has {len(prompt_ids)} tokens, the context holds {self.context}; shorten it"
            )
        limit = min(max_new_tokens, self.context - len(prompt_ids) + 1)  # the last token is made, but not read
        sampler = _core.Sampler(max_new_tokens, **sampling)
        with self._lock:
            self._count += 1
            request = _Request(list(prompt_ids), len(prompt_ids), limit, sampler, ended=limit == 0)
            self._requests[self._count] = request
            return self._count

    def next(self, request: int) -> tuple[list[int], str | None]:
        """New tokens of a request, computed now if there are none, and why it has ended once it has."""
        with self._lock:
            row = self._requests[request]
            while not row.ended and row.new == row.delivered:
                self._step(self._group_of(request))
            tokens = row.ids[row.prompt + row.delivered :]
            row.delivered = row.new
            return tokens, "length" if row.ended else None

    def cancel(self, request: int) -> None:
        """Nobody waits for more of it; the others of its group go on."""
        with self._lock:
            self._requests[request].ended = True

    def release(self, request: int) -> None:
        """Forgets a request, and its cache with the last of its group."""
        with self._lock:
            self._requests.pop(request, None)
            self._groups.pop(request, None)

    def _group_of(self, request: int) -> _Group:
        """Its group, made of what waits with a prompt as long when the first of them is asked for."""
        if request not in self._groups:
            first = self._requests[request]
            alike = {
                number: row
                for number, row in self._requests.items()
                if number not in self._groups and (row.prompt, row.limit) == (first.prompt, first.limit)
            }
            group = _Group(list(alike.values()), self.new_cache())
            self._groups.update(dict.fromkeys(alike, group))
        return self._groups[request]

    def _step(self, group: _Group) -> None:
        ids = group.unread()
        logits = last_logits(self.forward(ids, group.cache), ids)
        group.read += ids.shape[1]
        for row, values in zip(group.rows, logits, strict=True):
            row.ids.append(row.sampler.sample(values, row.new))
            row.ended = row.ended or row.new >= row.limit


def last_logits(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """f32 [B, V] for the last token of each row, of logits [B, T, V], [B, 1, V] or [B, V].

    Raises `atb.UnsupportedError` for other shapes.
    """
    rows, tokens = ids.shape
    if logits.dim() == 3 and logits.shape[0] == rows and logits.shape[1] in (1, tokens):
        logits = logits[:, -1]
    if logits.dim() != 2 or logits.shape[0] != rows:
        raise UnsupportedError(
            f"[generate] the model gives {list(logits.shape)} for ids {[rows, tokens]}; needs the logits [B, T, V], or "
            "[B, V] of the last token"
        )
    return logits.float().contiguous()

# SPDX-License-Identifier: Apache-2.0
"""Token generation on tensors, in the shape that transformers users know: ids in, ids out, padded rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from atb.errors import InvalidArgumentError
from atb.generation import SamplingOptions, give_back, submit, unknown_option

from atb_torch.stopping import StopRule

_SAMPLING = ("max_new_tokens", "temperature", "top_k", "top_p", "seed")
_OPTIONS = (*_SAMPLING, "eos_token_id", "pad_token_id", "stop", "streamer", "tokenizer", "attention_mask")
_HINTS = {"stop_token_ids": "pass eos_token_id", "ignore_eos": "pass eos_token_id=None", "stop_strings": "pass stop"}
_ID_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def generate(
    engine: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    *,
    sampling: SamplingOptions,
    rule: StopRule,
    pad_token_id: int | None = None,
    streamer: Any = None,
) -> torch.Tensor:
    """Continues each row of `input_ids` [B, T]; returns i64 [B, T + N], where N is the longest continuation.

    engine: a native engine (`atb._core.Engine`).
    attention_mask: [B, T], zero where a row is padded, on its left or its right; the other tokens of a row must stand
        side by side. A row's positions count from its first token.
    sampling: of the first row; row i draws with seed + i.
    rule: what ends a row; the token that does is the row's last, as in transformers.
    pad_token_id: what fills shorter rows behind their end; the first end token by default. Without end tokens, rows go
        on until all have ended, as in transformers. Where there is no mask, this token is padding unless it ends rows.
    streamer: has `put(ids)` and `end()`.
    """
    prompts = prompt_rows(input_ids, attention_mask, None if pad_token_id in rule.ends else pad_token_id)
    put = _streaming(streamer, input_ids)
    rows: list[_Row] = []
    try:
        for index, prompt in enumerate(prompts):
            rows.append(_Row(engine, submit(engine, prompt, sampling.of_row(index)), prompt, rule))
        new = _continue(rows, put, wait=bool(rule.ends))
    finally:
        give_back(engine, [row.request for row in rows])
    if streamer is not None:
        streamer.end()
    fill = pad_token_id if pad_token_id is not None else next(iter(rule.ends), 0)
    longest = max(map(len, new), default=0)
    filled = torch.full((len(new), longest), fill, dtype=torch.int64)
    for index, ids in enumerate(new):
        filled[index, : len(ids)] = torch.tensor(ids, dtype=torch.int64)
    return torch.cat([input_ids.to(torch.int64), filled], dim=1)


def sampling_options(options: Mapping[str, Any]) -> SamplingOptions:
    """What `generate` takes as `**options`. Raises `atb.InvalidArgumentError` with all options for another name."""
    for name in options:
        if name not in _SAMPLING:
            raise unknown_option(name, _OPTIONS, _HINTS)
    return SamplingOptions.from_options({**options, "stop_token_ids": ()})


def prompt_rows(
    input_ids: torch.Tensor, attention_mask: torch.Tensor | None, padding: int | None = None
) -> list[list[int]]:
    """The ids of each row without its padding: where the mask is zero, or without a mask the token `padding`."""
    for name, tensor in (("input_ids", input_ids), ("attention_mask", attention_mask)):
        if not isinstance(tensor, torch.Tensor) and (tensor is not None or name == "input_ids"):
            raise InvalidArgumentError(
                f"[generate] {name} is a {type(tensor).__name__}; expected a tensor [batch, tokens], as "
                "torch.tensor([[1, 2]])"
            )
    if input_ids.dim() != 2 or input_ids.dtype not in _ID_DTYPES:
        raise InvalidArgumentError(
            f"[generate] input_ids is {input_ids.dtype} {list(input_ids.shape)}; expected integers [batch, tokens]"
        )
    if attention_mask is None:
        return [[token for token in row if token != padding] for row in input_ids.tolist()]
    if attention_mask.shape != input_ids.shape:
        raise InvalidArgumentError(
            f"[generate] attention_mask is {list(attention_mask.shape)}; expected {list(input_ids.shape)} as input_ids"
        )
    return [
        _unpadded(row, ids, mask)
        for row, (ids, mask) in enumerate(zip(input_ids.tolist(), (attention_mask != 0).tolist(), strict=True))
    ]


def _unpadded(row: int, ids: Sequence[int], mask: Sequence[bool]) -> list[int]:
    kept = [index for index, seen in enumerate(mask) if seen]
    if not kept:
        raise InvalidArgumentError(f"[generate] row {row} of attention_mask is all zero; expected at least one token")
    first, last = kept[0], kept[-1]
    if last - first + 1 != len(kept):
        raise InvalidArgumentError(
            f"[generate] row {row} of attention_mask has a hole between {first} and {last}; expected padding at one end"
        )
    return list(ids[first : last + 1])


class _Row:
    """A row as it grows: its prompt and what was generated, which may go beyond its end."""

    def __init__(self, engine: Any, request: int, prompt: Sequence[int], rule: StopRule) -> None:
        self.request = request
        self.length: int | None = None  # of what was generated to the row's end, once it has come
        self._engine = engine
        self._rule = rule
        self._ids = list(prompt)
        self._start = len(prompt)
        self._finished = False  # the engine has nothing more

    def new(self, count: int | None = None) -> list[int]:
        """What was generated, to the row's end or of a length."""
        return self._ids[self._start :][: self.length if count is None else count]

    def advance(self) -> None:
        """Waits for more tokens."""
        tokens, reason = self._engine.next(self.request)
        for token in tokens:
            self._ids.append(token)
            if self.length is None and self._rule.ends_at(self._ids, self._start):
                self.length = len(self._ids) - self._start
        self._finished = reason is not None
        if self._finished and self.length is None:
            self.length = len(self._ids) - self._start
        if self.length is not None and self._rule.ends:
            self._engine.cancel(self.request)

    def advance_to(self, count: int) -> None:
        """Waits until `count` tokens are there, or the engine has no more."""
        while not self._finished and len(self._ids) - self._start < count:
            self.advance()


def _continue(rows: Sequence[_Row], put: Callable[[Sequence[int]], None], wait: bool) -> list[list[int]]:
    """Takes turns until every row has ended; what was generated of each. An ended row waits, or goes on meanwhile."""
    while running := [row for row in rows if row.length is None]:
        for row in running:
            seen = len(row.new())
            row.advance()
            put(row.new()[seen:])
    longest = max((row.length or 0 for row in rows), default=0)
    if wait:
        return [row.new() for row in rows]
    for row in rows:
        row.advance_to(longest)
    return [row.new(longest) for row in rows]


def _streaming(streamer: Any, input_ids: torch.Tensor) -> Callable[[Sequence[int]], None]:
    """What takes new tokens: the streamer, which gets the prompt at once, or nobody."""
    if streamer is None:
        return lambda tokens: None
    if input_ids.shape[0] != 1:
        raise InvalidArgumentError(f"[generate] streamer is given with {input_ids.shape[0]} rows; it takes one row")
    streamer.put(input_ids.cpu())

    def put(tokens: Sequence[int]) -> None:
        for token in tokens:
            streamer.put(torch.tensor([token]))

    return put

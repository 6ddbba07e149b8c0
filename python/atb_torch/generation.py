# SPDX-License-Identifier: Apache-2.0
"""Token generation on tensors, in the shape that transformers users know: ids in, ids out, padded rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from atb.errors import InvalidArgumentError
from atb.generation import SamplingOptions, give_back, submit


def generate(
    engine: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    *,
    eos_token_ids: Iterable[int] = (),
    pad_token_id: int | None = None,
    **options: Any,
) -> torch.Tensor:
    """Continues each row of `input_ids` [B, T]; returns i64 [B, T + N], where N is the longest continuation.

    engine: a native engine (`atb._core.Engine`).
    attention_mask: [B, T], zero where a row is padded, on its left or its right; the other tokens of a row must stand
        side by side. A row's positions count from its first token.
    eos_token_ids: each ends its row and is the row's last token, as in transformers.
    pad_token_id: what fills shorter rows behind their end; the first end token by default, else 0.
    options: the other fields of `atb.generation.SamplingOptions` (max_new_tokens, temperature, top_k, top_p, seed).
    """
    ends = list(eos_token_ids)
    sampling = SamplingOptions.from_options({**options, "stop_token_ids": ()})
    prompts = prompt_rows(input_ids, attention_mask)
    requests: list[int] = []
    try:
        for prompt in prompts:
            requests.append(submit(engine, prompt, sampling))
        rows = _drive(engine, requests, frozenset(ends))
    finally:
        give_back(engine, requests)
    fill = pad_token_id if pad_token_id is not None else ends[0] if ends else 0
    longest = max((len(row) for row in rows), default=0)
    new = torch.full((len(rows), longest), fill, dtype=torch.int64)
    for index, row in enumerate(rows):
        new[index, : len(row)] = torch.tensor(row, dtype=torch.int64)
    return torch.cat([input_ids.to(torch.int64), new], dim=1)


def prompt_rows(input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> list[list[int]]:
    """The ids of each row without its padding."""
    if input_ids.dim() != 2 or input_ids.is_floating_point():
        raise InvalidArgumentError(
            f"[generate] input_ids is {input_ids.dtype} {list(input_ids.shape)}; expected integers [batch, tokens]"
        )
    if attention_mask is None:
        rows: list[list[int]] = input_ids.tolist()
        return rows
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


def _drive(engine: Any, requests: Sequence[int], ends: frozenset[int]) -> list[list[int]]:
    """Takes turns until every request has ended, by itself or by one of `ends`, which stays in its row."""
    rows: dict[int, list[int]] = {request: [] for request in requests}
    running = list(requests)
    while running:
        for request in list(running):
            tokens, reason = engine.next(request)
            ended = _append(rows[request], tokens, ends)
            if ended:
                engine.cancel(request)
            if ended or reason is not None:
                running.remove(request)
    return list(rows.values())


def _append(row: list[int], tokens: Iterable[int], ends: frozenset[int]) -> bool:
    """Appends up to and with the first end token; true where there was one."""
    for token in tokens:
        row.append(token)
        if token in ends:
            return True
    return False

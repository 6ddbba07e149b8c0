# SPDX-License-Identifier: Apache-2.0
"""For which sizes an exported decoder is the module: a step of the engine runs at any, and checks no guards."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from atb.errors import UnsupportedError

from atb_torch.block_export import without_caches
from atb_torch.errors import quiet
from atb_torch.exporting import Entry
from atb_torch.guards import Guards
from atb_torch.ones import same_at_one, unchanged

_UNLIMITED = 1 << 31
_LENGTHS_TRIED = 256
_ROWS_TRIED = 32
_LARGEST_RUN = 4096  # rows of a batch that is really computed, to see what a limit means


def longest(guards: Guards, example: torch.Tensor) -> int:
    """Up to what length the exported program is the module.

    Limits are ranges; what else a module decides by its length is seen at short ones. Raises where shorter sequences
    than the example are others.
    """
    rows, length = example.shape
    high = _limit(guards, axis=-1)
    for size in range(2, min(high, _LENGTHS_TRIED)):  # at the limit itself a slice of a table is all of it
        if guards.bind([_like(example, rows, size)]) is not None:
            continue
        if size > length:
            return size - 1
        raise UnsupportedError(
            f"[generate] the module decides by the length of its input: what it does for {length} tokens is not what "
            f"it does for {size}; needs one form for all lengths"
        )
    return high


def require_one_form(entry: Entry, guards: Guards, example: torch.Tensor) -> None:
    """Raises `atb.UnsupportedError` where the module computes something else for other batches, or for one token.

    What guards leave open, or what calls other operators at size 1, is computed by the module itself and compared:
    some modules take another path to the same numbers.
    """
    rows, length = example.shape
    name = type(entry.module).__name__
    for size in _other_batches(guards, example):
        if not _same_numbers(entry, example, size, length):
            raise UnsupportedError(
                f"[generate] {name} decides by the size of its batch (input_ids.shape[0]): what it does for "
                f"{size} row{'s' if size > 1 else ''} is not what it does for {rows}; generate() "
                "runs rows of any number together, so that the module needs one form for all batches"
            )
    for size, tokens in ((1, length), (1, 1)):
        if not _same_at(entry, example, size, tokens) and not _same_numbers(entry, example, size, tokens):
            what = "size of its batch" if tokens > 1 else "length of its input"
            raise UnsupportedError(
                f"[generate] {name} decides by the {what} (input_ids.shape[{int(tokens == 1)}] == 1): what it does for "
                f"1 is not what it does for more; generate() runs any number, so that the module needs one form for all"
            )


def _other_batches(guards: Guards, example: torch.Tensor) -> Iterator[int]:
    """Numbers of rows that the program is not known to be right for."""
    rows, length = example.shape
    above = _limit(guards, axis=0) + 1
    tried = [size for size in range(1, _ROWS_TRIED + 1) if size != rows]
    for size in [*tried, *([above] if _ROWS_TRIED < above <= _LARGEST_RUN else [])]:
        if guards.bind([_like(example, size, length)]) is None:
            yield size


def _limit(guards: Guards, axis: int) -> int:
    """The largest extent of an axis that the program takes."""
    size = guards.tensors[0].shape[axis]
    name = str(size.node.expr) if isinstance(size, torch.SymInt) else ""
    return guards.ranges[name][1] if name in guards.ranges else _UNLIMITED


def _like(example: torch.Tensor, rows: int, length: int) -> torch.Tensor:
    return torch.empty(rows, length, dtype=example.dtype, device="meta")


def _same_at(entry: Entry, example: torch.Tensor, rows: int, length: int) -> bool:
    """Whether the same operators are called; False where that cannot be told without data."""
    try:
        with quiet(), without_caches():
            return same_at_one(entry, [_like(example, rows, length)], [_like(example, *example.shape)])
    except Exception:
        return False


def _same_numbers(entry: Entry, example: torch.Tensor, rows: int, length: int) -> bool:
    """Whether the module gives the first row and tokens what it gives them as part of the example.

    True where it does not run at these sizes: then there is nothing to be equal to. So for a head that reads the last
    token alone, which tells nothing of shorter rows.
    """
    whole, made = _computed(entry, example, *example.shape), _computed(entry, example, rows, length)
    if whole is None or made is None:
        return True
    if whole.dim() != 3 or whole.shape[1] != example.shape[1]:
        if length != example.shape[1]:
            return True
    else:
        whole = whole[:, :length]
    if whole[0].shape != made[0].shape:
        return False
    bound = 1e-3 if whole.dtype is torch.float32 else 2e-2
    first, other = whole[0].float(), made[0].float()
    return bool((first - other).abs().max() <= bound * first.abs().max())


def _computed(entry: Entry, example: torch.Tensor, rows: int, length: int) -> torch.Tensor | None:
    """The module's first output for a batch of equal tokens, with copies of its buffers; None if it raises."""
    buffers = {name: buffer.clone() for name, buffer in entry.named_buffers()}
    ids = example.new_ones(rows, length)
    try:
        with torch.no_grad(), without_caches(), unchanged(entry):
            outputs = torch.func.functional_call(entry, buffers, (ids,))
    except Exception:
        return None
    return outputs[0] if outputs and outputs[0].dim() > 1 and outputs[0].numel() else None

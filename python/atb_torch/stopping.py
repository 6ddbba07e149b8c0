# SPDX-License-Identifier: Apache-2.0
"""What ends a row of `generate` besides its length: end tokens, sequences of tokens, and strings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from atb.errors import InvalidArgumentError
from atb.generation import as_ids, is_int

Stop = str | Sequence[int] | Sequence[str | Sequence[int]]


class StopRule:
    """Decides after each token whether its row ends with it; that token is the row's last.

    A string ends a row once a token completes it, whatever else that token holds; a sequence of ids once the row ends
    in it. Both may begin in the prompt, as in transformers.
    """

    def __init__(self, end_token_ids: Iterable[int] = (), stop: Stop | None = None, tokenizer: Any = None) -> None:
        """stop: a string, a sequence of token ids, or a list of such. tokenizer: what decodes ids; strings need it."""
        self.ends = tuple(end_token_ids)
        self._sequences: list[list[int]] = []
        self._strings: list[str] = []
        for item in _items(stop):
            if isinstance(item, str):
                self._strings.append(item)
            else:
                self._sequences.append(as_ids(item, "stop"))
        if not all(self._sequences) or not all(self._strings):
            raise InvalidArgumentError("[generate] stop holds an empty entry; expected text or token ids")
        if self._strings and not hasattr(tokenizer, "decode"):
            raise InvalidArgumentError(
                "[generate] stop holds text, which needs a tokenizer; pass tokenizer=..., or token ids as stop"
            )
        self._tokenizer = tokenizer

    def ends_at(self, row: Sequence[int], start: int) -> bool:
        """Whether the last token of a row ends it; what was generated begins at `start`."""
        if len(row) <= start:
            return False
        if row[-1] in self.ends or any(list(row[-len(ids) :]) == ids for ids in self._sequences):
            return True
        return any(self._completes(row, text) for text in self._strings)

    def _completes(self, row: Sequence[int], text: str) -> bool:
        # A token holds at least a byte. One more goes in front: some tokenizers drop a space where a text begins.
        tail = list(row[-len(text.encode()) - 1 :])
        before, now = self._decode(tail[:-1]), self._decode(tail)
        settled = next((i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), len(before))
        return now.find(text, max(0, settled - len(text) + 1)) >= 0

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids)) if ids else ""


def _items(stop: Stop | None) -> list[str | Sequence[int]]:
    """One text or one sequence of ids is one entry; anything else is a list of entries."""
    if stop is None:
        return []
    if isinstance(stop, str):
        return [stop]
    if not isinstance(stop, Iterable):
        raise InvalidArgumentError(
            f"[generate] stop is a {type(stop).__name__}; expected text, token ids or a list of them"
        )
    entries: list[Any] = list(stop.tolist() if hasattr(stop, "tolist") else stop)
    return [entries] if entries and all(map(is_int, entries)) else entries

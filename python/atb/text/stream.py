# SPDX-License-Identifier: Apache-2.0
"""From tokens to text, one token at a time, without ever splitting a character.

Each token stands for bytes. They pass through an incremental UTF-8 decoder, which keeps the bytes of an unfinished
character until the rest arrives and turns a broken sequence into one U+FFFD. Full decoding is the same walk, so joined
deltas always equal the full text.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable

# Bytes of a token; None for a token that is not shown (control tokens).
PieceBytes = Callable[[int], "bytes | None"]


class TextStream:
    """Turns tokens into text deltas. Not shared between threads: one stream belongs to one request."""

    def __init__(self, piece_bytes: PieceBytes, strip_leading_space: bool = False) -> None:
        """`strip_leading_space` drops one space at the very start (SentencePiece writes one before each text)."""
        self._piece_bytes = piece_bytes
        self._strip = strip_leading_space
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """Text that this token completes; empty while a character is unfinished."""
        piece = self._piece_bytes(token)
        if not piece:
            return ""
        if self._strip:
            self._strip = False
            piece = piece[1:] if piece.startswith(b" ") else piece
        return self._decoder.decode(piece)

    def push_all(self, tokens: Iterable[int]) -> str:
        """Text that these tokens complete."""
        return "".join(map(self.push, tokens))

    def finish(self) -> str:
        """The rest: one U+FFFD if the text was cut inside a character, else nothing."""
        return self._decoder.decode(b"", final=True)

# SPDX-License-Identifier: Apache-2.0
"""What bytes a token of a vocabulary stands for, for the two alphabets in use: byte-level BPE and SentencePiece."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from atb.errors import UnsupportedError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@cache
def byte_level_alphabet() -> dict[str, int]:
    """Character -> byte of byte-level BPE: printable Latin-1 stands for itself, U+0100 onwards for the other bytes."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    alphabet = {chr(byte): byte for byte in printable}
    hidden = [byte for byte in range(256) if byte not in printable]
    return alphabet | {chr(0x100 + i): byte for i, byte in enumerate(hidden)}


def byte_level_piece(text: str) -> bytes:
    """Bytes of a byte-level BPE token; text outside the alphabet stands for itself."""
    alphabet = byte_level_alphabet()
    try:
        return bytes([alphabet[c] for c in text])
    except KeyError:
        return text.encode("utf-8", errors="replace")


def sentencepiece_piece(text: str) -> bytes:
    """Bytes of a SentencePiece token: <0xHH> is one byte, U+2581 is a space."""
    byte = _BYTE_TOKEN.fullmatch(text)
    if byte:
        return bytes([int(byte[1], 16)])
    return text.replace("\u2581", " ").encode("utf-8", errors="replace")


def reader_for(decoder: dict[str, Any] | None) -> tuple[Callable[[str], bytes], bool]:
    """(token text -> bytes, strips one leading space) for a decoder as tokenizer.json writes it."""
    steps = decoder["decoders"] if decoder and decoder["type"] == "Sequence" else [decoder] if decoder else []
    names = [step["type"] for step in steps]
    if "ByteLevel" in names:
        return byte_level_piece, False
    if "Metaspace" in names:
        step = steps[names.index("Metaspace")]
        if step.get("replacement") == "\u2581":
            return sentencepiece_piece, step.get("prepend_scheme", "always") != "never"
    if "ByteFallback" in names or any(_writes_space(step) for step in steps):
        return sentencepiece_piece, "Strip" in names
    raise UnsupportedError(
        f"[tokenizer] decoder {'+'.join(names) or 'none'} is not supported; supported are ByteLevel, Metaspace and"
        " SentencePiece with byte fallback"
    )


def _writes_space(step: dict[str, Any]) -> bool:
    return step["type"] == "Replace" and step.get("pattern") == {"String": "\u2581"} and step.get("content") == " "

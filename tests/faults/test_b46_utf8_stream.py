# SPDX-License-Identifier: Apache-2.0
"""B46: a character split over several tokens is not streamed as U+FFFD, and broken bytes break nothing."""

from __future__ import annotations

import json

import pytest
from atb.text.stream import TextStream

BYTES = [bytes([b]) for b in range(256)]


def deltas(tokens: list[int]) -> tuple[list[str], str]:
    stream = TextStream(BYTES.__getitem__)
    return [stream.push(token) for token in tokens], stream.finish()


def test_a_character_arrives_whole() -> None:
    assert deltas([0xF0, 0x9F, 0x98, 0x80]) == (["", "", "", "😀"], "")


def test_a_cut_character_is_one_replacement_at_the_end() -> None:
    assert deltas([0xF0, 0x9F, 0x98]) == (["", "", ""], "\ufffd")


def test_a_broken_character_is_one_replacement() -> None:
    pieces, rest = deltas([0xF0, 0x9F, 0x61])
    assert "".join(pieces) + rest == "\ufffda"
    json.dumps(pieces).encode("utf-8")


@pytest.mark.parametrize("seed", range(20))
def test_joined_stream_equals_full_decode(seed: int) -> None:
    import random

    chance = random.Random(seed)
    text = "".join(chance.choice("aé€😀\u0000") for _ in range(40)).encode()
    noisy = [byte if chance.random() > 0.05 else int(chance.random() * 256) for byte in text]
    pieces, rest = deltas(noisy)
    assert "".join(pieces) + rest == bytes(noisy).decode("utf-8", errors="replace")

# SPDX-License-Identifier: Apache-2.0
"""Tokenizer metadata of GGUF files, broken on purpose: an error of ours that names the key, or a tokenizer that works.

What the C++ side reads of the same keys is fuzzed in tests/fuzz/tokenizer_fuzz.cc.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from atb.errors import DataLossError, Error
from atb.text.tokenizer import Tokenizer

BYTES = [chr(c) for c in range(33, 127)] + ["Ġ", "Ċ"]
BPE: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": [*BYTES, "ab", "Ġab", "<|end|>"],
    "tokenizer.ggml.token_type": [1] * (len(BYTES) + 2) + [3],
    "tokenizer.ggml.merges": ["a b", "Ġ ab"],
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": len(BYTES) + 2,
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.chat_template": "{{ messages[0]['content'] }}",
}
PIECES = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "ab", "▁ab"]
SENTENCEPIECE: dict[str, Any] = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": PIECES,
    "tokenizer.ggml.token_type": [2, 3] + [6] * 256 + [1] * 6,
    "tokenizer.ggml.scores": [0.0] * 258 + [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.add_space_prefix": True,
}
# Lone surrogates stand for bytes that are no UTF-8.
ODD = [
    None,
    True,
    -1,
    0,
    1 << 63,
    math.nan,
    math.inf,
    "",
    " ",
    "a",
    "\x00",
    "\udcff",
    "😀",
    [],
    ["a"],
    [1],
    [None],
    [[]],
]
TEXT = "ab <|end|> ab é😀\n"


def mutated(metadata: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """One or two keys dropped or changed: another value, or a list with an item dropped, doubled or replaced."""
    result = dict(metadata)
    for _ in range(draw.randint(1, 2)):
        key = draw.choice(list(result))
        value = result[key]
        if isinstance(value, list) and value and draw.random() < 0.7:
            at = draw.randrange(len(value))
            result[key] = value[:at] + draw.choice([[], [value[at]] * 2, [draw.choice(ODD)]]) + value[at + 1 :]
        elif draw.random() < 0.2:
            del result[key]
        else:
            result[key] = draw.choice(ODD)
    return result


@pytest.mark.parametrize("metadata", [BPE, SENTENCEPIECE], ids=["bpe", "sentencepiece"])
def test_mutations_end_in_our_errors_or_in_a_tokenizer(metadata: dict[str, Any]) -> None:
    draw = random.Random(20261130)
    refused = 0
    for _ in range(1500):
        try:
            tokenizer = Tokenizer.from_gguf(mutated(metadata, draw))
        except Error as error:
            assert str(error).startswith("[tokenizer] ") and "\n" not in str(error)
            refused += 1
            continue
        ids = tokenizer.encode(TEXT)
        assert all(0 <= i < 1 << 20 for i in ids)
        assert isinstance(tokenizer.decode(ids), str)
    assert 300 < refused < 1450  # both ways out are taken


@pytest.mark.parametrize("metadata", [BPE, SENTENCEPIECE], ids=["bpe", "sentencepiece"])
def test_tokens_that_are_no_utf8_are_named(metadata: dict[str, Any]) -> None:
    tokens = ["x", "\udce2\udc96", *metadata["tokenizer.ggml.tokens"][2:]]
    with pytest.raises(DataLossError, match=r"tokenizer.ggml.tokens: entry 1 is not valid UTF-8 \(bytes e2 96\)"):
        Tokenizer.from_gguf(metadata | {"tokenizer.ggml.tokens": tokens})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokenizer.ggml.model", 3),
        ("tokenizer.ggml.pre", ["smollm"]),
        ("tokenizer.ggml.merges", ["a b", 7]),
        ("tokenizer.ggml.token_type", ["normal"]),
        ("tokenizer.ggml.bos_token_id", "first"),
        ("tokenizer.ggml.eos_token_id", 1 << 40),
        ("tokenizer.chat_template", 5),
    ],
)
def test_values_of_another_kind_name_their_key(key: str, value: Any) -> None:
    with pytest.raises(Error, match=key.removeprefix("tokenizer.").removeprefix("ggml.")):
        Tokenizer.from_gguf(BPE | {key: value})

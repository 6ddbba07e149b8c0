# SPDX-License-Identifier: Apache-2.0
"""Tokenizers from GGUF metadata against llama.cpp's ids for the same vocabularies (goldens/tokenizer.json.xz)."""

from __future__ import annotations

import base64
import json
import lzma
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from atb import _core
from atb.text.gguf import build_backend
from atb.text.pre_tokenizers import PRE_TOKENIZERS
from atb.text.tokenizer import Tokenizer

ABSENT = re.compile(r"[\x04\x06\x13\x14\x16\x1d]")
GOLDENS = Path(__file__).parents[1] / "goldens"
sys.path.insert(0, str(GOLDENS))

from tokenizer_strings import hash_ids, hash_strings, mixed_strings  # noqa: E402


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(lzma.decompress((GOLDENS / "tokenizer.json.xz").read_bytes()))
    return value


@pytest.fixture(scope="module")
def strings(golden: dict[str, Any]) -> list[str]:
    strings = mixed_strings(10_000)
    assert hash_strings(strings) == golden["strings"], "the string generator no longer makes the golden's strings"
    return strings


@pytest.fixture(scope="module")
def metadata(smollm2: Path) -> dict[str, Any]:
    return _core.gguf_metadata(str(smollm2))


def differing(tokenizer: Tokenizer, strings: list[str], packed: str) -> list[str]:
    """Strings whose ids differ from the golden's, as far as it goes."""
    hashes = base64.b64decode(packed)
    expected = [hashes[at : at + 4] for at in range(0, len(hashes), 4)]
    return [text for text, h in zip(strings, expected, strict=False) if hash_ids(tokenizer.encode(text, False)) != h]


def test_all_strings_of_the_bundled_model(golden: dict[str, Any], strings: list[str], metadata: dict[str, Any]) -> None:
    tokenizer = Tokenizer.from_gguf(metadata)
    assert [tokenizer.encode(text, False) for text in strings[: len(golden["in_full"])]] == golden["in_full"]
    assert len(base64.b64decode(golden["own"])) == 4 * len(strings) == 40_000
    assert differing(tokenizer, strings, golden["own"]) == []


@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "dbrx", "qwen2", "stablelm2", "default", "falcon", "starcoder"])
def test_named_pre_tokenizers(name: str, golden: dict[str, Any], strings: list[str], metadata: dict[str, Any]) -> None:
    tokenizer = Tokenizer.from_gguf(metadata | {"tokenizer.ggml.pre": name, "tokenizer.ggml.add_bos_token": False})
    assert differing(tokenizer, strings, golden["named"][name]) == []


def test_the_golden_tells_pre_tokenizers_apart(
    golden: dict[str, Any], strings: list[str], metadata: dict[str, Any]
) -> None:
    tokenizer = Tokenizer.from_gguf(metadata | {"tokenizer.ggml.pre": "gpt-2"})
    assert len(differing(tokenizer, strings, golden["own"])) > 1_000


def test_sentencepiece(golden: dict[str, Any], strings: list[str]) -> None:
    fields = golden["sentencepiece"]["fields"]
    tokenizer = Tokenizer.from_gguf(fields)
    assert differing(tokenizer, strings, golden["sentencepiece"]["ids"]) == []


def test_every_golden_name_is_known(golden: dict[str, Any]) -> None:
    assert {*golden["named"], golden["own_name"]} <= set(PRE_TOKENIZERS)


def test_text_survives_a_round_trip(golden: dict[str, Any], strings: list[str], metadata: dict[str, Any]) -> None:
    # Control tokens are not shown, and the bundled vocabulary has no token for some control characters.
    plain = [s for s in strings[:2_000] if "<" not in s and not ABSENT.search(s)]
    assert len(plain) > 1_000
    for tokenizer in (Tokenizer.from_gguf(metadata), Tokenizer.from_gguf(golden["sentencepiece"]["fields"])):
        assert [s for s in plain if tokenizer.decode(tokenizer.encode(s, False)) != s] == []


def test_decode_equals_the_backend(strings: list[str], metadata: dict[str, Any]) -> None:
    tokenizer, backend = Tokenizer.from_gguf(metadata), build_backend(metadata)
    for text in strings[:1_000]:
        ids = tokenizer.encode(text, False)
        assert tokenizer.decode(ids) == backend.decode(ids, skip_special_tokens=True)

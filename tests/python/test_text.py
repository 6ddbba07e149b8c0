# SPDX-License-Identifier: Apache-2.0
"""Tokenizer construction, streaming and chat templates on tiny vocabularies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import atb
import pytest
import tokenizers
from atb.text.chat import ChatTemplate
from atb.text.pieces import reader_for
from atb.text.stream import TextStream
from atb.text.tokenizer import Tokenizer

BYTE_LEVEL: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": ["<s>", "</s>", "a", "b", "ab", "Ġ", "Ġa", "<tag>"],
    "tokenizer.ggml.token_type": [3, 3, 1, 1, 1, 1, 1, 4],
    "tokenizer.ggml.merges": ["a b", "Ġ a"],
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 1,
}

SENTENCEPIECE: dict[str, Any] = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>"]
    + [f"<0x{b:02X}>" for b in range(256)]
    + ["▁", "a", "b", "▁a", "ab"],
    "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * 5,
    "tokenizer.ggml.scores": [0.0] * 259 + [-3.0, -4.0, -5.0, -1.0, -2.0],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}


def test_bos_only_where_the_file_asks_for_it() -> None:
    assert Tokenizer.from_gguf(BYTE_LEVEL).encode("ab") == [4]
    assert Tokenizer.from_gguf(BYTE_LEVEL | {"tokenizer.ggml.add_bos_token": True}).encode("ab") == [0, 4]
    assert Tokenizer.from_gguf(BYTE_LEVEL | {"tokenizer.ggml.pre": "llama-bpe"}).encode("ab") == [0, 4]
    assert Tokenizer.from_gguf(BYTE_LEVEL | {"tokenizer.ggml.add_eos_token": True}).encode("ab") == [4, 1]
    assert Tokenizer.from_gguf(SENTENCEPIECE).encode("a") == [1, 262]


def test_a_bos_is_not_doubled() -> None:
    tokenizer = Tokenizer.from_gguf(BYTE_LEVEL | {"tokenizer.ggml.add_bos_token": True})
    assert tokenizer.encode("<s>ab") == [0, 4]
    assert tokenizer.encode("<s><s>ab") == [0, 0, 4]


def test_special_tokens_in_text() -> None:
    tokenizer = Tokenizer.from_gguf(BYTE_LEVEL)
    assert tokenizer.encode("ab</s><tag>ab") == [4, 1, 7, 4]
    assert tokenizer.decode([4, 1, 7, 4]) == "ab<tag>ab"  # control tokens are not shown, user-defined ones are


def test_ids_outside_the_vocabulary_show_nothing() -> None:
    assert Tokenizer.from_gguf(BYTE_LEVEL).decode([4, 8, 1_000_000, 4]) == "abab"


@pytest.mark.parametrize(
    ("change", "error", "names"),
    [
        ({"tokenizer.ggml.pre": "nobody"}, atb.UnsupportedError, ["nobody", "gpt-2", "smollm", "llama-bpe", "qwen2"]),
        ({"tokenizer.ggml.model": "rwkv"}, atb.UnsupportedError, ["rwkv", "gpt2", "llama"]),
        ({"tokenizer.ggml.model": None}, atb.DataLossError, ["tokenizer.ggml.model"]),
        ({"tokenizer.ggml.tokens": []}, atb.DataLossError, ["tokenizer.ggml.tokens"]),
        ({"tokenizer.ggml.merges": None}, atb.DataLossError, ["tokenizer.ggml.merges"]),
        ({"tokenizer.ggml.merges": ["x y"]}, atb.DataLossError, ["tokenizer.ggml.merges"]),
        ({"tokenizer.ggml.token_type": [1]}, atb.DataLossError, ["token_type", "1", "8"]),
        ({"tokenizer.ggml.bos_token_id": 8}, atb.DataLossError, ["bos", "8"]),
    ],
)
def test_bad_metadata(change: dict[str, Any], error: type[Exception], names: list[str]) -> None:
    with pytest.raises(error) as caught:
        Tokenizer.from_gguf(BYTE_LEVEL | change)
    message = str(caught.value)
    assert message.startswith("[tokenizer]")
    assert "\n" not in message
    assert [name for name in names if name not in message] == []


def test_scores_without_an_order_are_refused() -> None:
    scores = [*SENTENCEPIECE["tokenizer.ggml.scores"][:-1], -1.0]
    with pytest.raises(atb.UnsupportedError, match="share the score"):
        Tokenizer.from_gguf(SENTENCEPIECE | {"tokenizer.ggml.scores": scores})


def test_sentencepiece_spaces() -> None:
    tokenizer = Tokenizer.from_gguf(SENTENCEPIECE)
    ids = tokenizer.encode("a ab", add_special_tokens=False)
    assert ids == [262, 262, 261]
    assert tokenizer.decode(ids) == "a ab"
    assert tokenizer.decode(ids, continuation=True) == " a ab"
    assert tokenizer.encode("é", add_special_tokens=False) == [259, 3 + 0xC3, 3 + 0xA9]
    assert tokenizer.decode([3 + 0xC3, 3 + 0xA9]) == "é"


def test_lone_surrogates_are_an_error() -> None:
    with pytest.raises(atb.InvalidArgumentError, match="surrogate"):
        Tokenizer.from_gguf(BYTE_LEVEL).encode("a\ud800")


def save_word_piece(directory: Path, **parts: Any) -> None:
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={"<s>": 0, "a": 1, "b": 2, "ab": 3}, merges=[("a", "b")])
    )
    backend.add_special_tokens(["<s>"])
    for name, value in parts.items():
        setattr(backend, name, value)
    backend.save(str(directory / "tokenizer.json"))


def test_directory_follows_the_post_processor(tmp_path: Path) -> None:
    template = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    save_word_piece(tmp_path, decoder=tokenizers.decoders.ByteLevel(), post_processor=template)
    tokenizer = Tokenizer.from_directory(tmp_path)
    assert tokenizer.encode("ab") == [0, 3]
    assert tokenizer.encode("ab", add_special_tokens=False) == [3]


def test_directory_truncation_is_off(tmp_path: Path) -> None:
    save_word_piece(tmp_path, decoder=tokenizers.decoders.ByteLevel())
    file = tmp_path / "tokenizer.json"
    backend = tokenizers.Tokenizer.from_file(str(file))
    backend.enable_truncation(2)
    backend.save(str(file))
    assert Tokenizer.from_directory(tmp_path).encode("ababab") == [3, 3, 3]


def test_directory_errors(tmp_path: Path) -> None:
    with pytest.raises(atb.NotFoundError, match=r"tokenizer\.json"):
        Tokenizer.from_directory(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(atb.DataLossError, match=r"tokenizer\.json"):
        Tokenizer.from_directory(tmp_path)
    save_word_piece(tmp_path, decoder=tokenizers.decoders.WordPiece())
    with pytest.raises(atb.UnsupportedError, match="WordPiece"):
        Tokenizer.from_directory(tmp_path)


@pytest.mark.parametrize(
    ("decoder", "piece", "strips"),
    [
        ({"type": "ByteLevel"}, b" x", False),
        ({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}, "Ġx".encode(), True),
        ({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}, "Ġx".encode(), False),
        ({"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Strip"}]}, "Ġx".encode(), True),
    ],
)
def test_decoders(decoder: dict[str, Any], piece: bytes, strips: bool) -> None:
    read, strips_space = reader_for(decoder)
    assert (read("Ġx"), strips_space) == (piece, strips)


def test_leading_space_is_dropped_once() -> None:
    pieces = [b" ", b" leading", b" x"]
    stream = TextStream(pieces.__getitem__, strip_leading_space=True)
    assert [stream.push(i) for i in range(3)] == ["", " leading", " x"]
    byte_level = TextStream(pieces.__getitem__)
    assert "".join(byte_level.push(i) for i in range(3)) == "  leading x"


def test_chat_template(tmp_path: Path) -> None:
    source = "{% for m in messages %}{{ bos_token }}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}>{% endif %}"  # noqa: E501
    config = {"chat_template": source, "bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    template = ChatTemplate.from_directory(tmp_path)
    assert template.render([{"role": "user", "content": "hi"}]) == "<s>[user] hi\n>"
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}{{ eos_token }}")
    assert ChatTemplate.from_directory(tmp_path).render([{"role": "user", "content": "hi"}]) == "hi</s>"


@pytest.mark.parametrize(
    ("source", "messages", "error"),
    [
        (None, [{"role": "user", "content": "x"}], atb.FailedPreconditionError),
        ("x", [], atb.InvalidArgumentError),
        ("{{ raise_exception('roles must alternate') }}", [{}], atb.InvalidArgumentError),
        ("{% for %}", [{}], atb.InvalidArgumentError),
        ("{{ ''.__class__.__mro__ }}", [{}], atb.InvalidArgumentError),  # the sandbox holds
    ],
)
def test_chat_errors(source: str | None, messages: list[Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^\[chat\]"):
        ChatTemplate(source).render(messages)

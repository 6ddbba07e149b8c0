# SPDX-License-Identifier: Apache-2.0
"""What ends a row of generate(), who sees its tokens, and padding without a mask: as transformers does it."""

from __future__ import annotations

from typing import Any

import atb
import atb_torch
import pytest
import torch
import transformers as tf
from atb_torch.stopping import StopRule
from families import VOCABULARY, model, tokens
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

LETTERS = "abcdefghij"


def tokenizer() -> tf.PreTrainedTokenizerFast:
    """A byte-level vocabulary as large as the models': bytes, and pairs and triples of letters."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [chr(code) for code in range(33, 127) if chr(code) in alphabet][:60]
    pieces += [a + b for a in LETTERS[:6] for b in LETTERS[:6]]
    pieces += list(pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str("é")[0][0])
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    while len(vocabulary) < VOCABULARY:
        vocabulary[f"<{len(vocabulary)}>"] = len(vocabulary)
    assert len(vocabulary) >= VOCABULARY
    vocabulary = dict(list(vocabulary.items())[:VOCABULARY])
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return tf.PreTrainedTokenizerFast(tokenizer_object=backend)


@pytest.fixture(scope="module")
def llama() -> tuple[torch.nn.Module, Any]:
    built = model("llama", "sdpa")
    built.generation_config.eos_token_id = None
    built.generation_config.pad_token_id = None
    built.config.eos_token_id = built.config.pad_token_id = None
    return built, atb_torch.compile(built)


def expected(built: torch.nn.Module, ids: torch.Tensor, **options: Any) -> torch.Tensor:
    """What transformers gives, greedily."""
    return built.generate(ids, do_sample=False, **options)


def test_stop_strings_end_rows_where_transformers_ends_them(llama: tuple[torch.nn.Module, Any]) -> None:
    built, fast = llama
    words = tokenizer()
    free = fast.generate(tokens(1, 9), max_new_tokens=24)
    text = words.decode(free[0, 9:].tolist())
    found = 0
    for start in range(0, len(text) - 3, 2):
        stop = text[start : start + 3]
        mine = fast.generate(tokens(1, 9), max_new_tokens=24, stop=stop, tokenizer=words)
        theirs = expected(built, tokens(1, 9), max_new_tokens=24, stop_strings=stop, tokenizer=words)
        assert torch.equal(mine, theirs), stop
        found += mine.shape[1] < 33
    assert found > 3


def test_a_batch_with_end_tokens_is_filled_and_without_goes_on(llama: tuple[torch.nn.Module, Any]) -> None:
    built, fast = llama
    words, ids = tokenizer(), tokens(3, 9)
    free = fast.generate(ids, max_new_tokens=20)
    stops = [words.decode(free[row, 12 + 3 * row : 14 + 3 * row].tolist()) for row in range(3)]
    unused = next(token for token in range(VOCABULARY) if token not in free)
    for ends in (None, unused):
        options = {"max_new_tokens": 20, "eos_token_id": ends, "pad_token_id": None if ends is None else unused}
        theirs = expected(built, ids, stop_strings=stops, tokenizer=words, **options)
        mine = fast.generate(ids, stop=stops, tokenizer=words, **options)
        assert torch.equal(mine, theirs)
        assert mine.shape[1] < 29


def ended(row: list[int], *sequences: list[int], start: int = 9) -> list[int]:
    """A row to the first token that ends one of the sequences."""
    for end in range(start + 1, len(row) + 1):
        if any(row[:end][-len(ids) :] == ids for ids in sequences):
            return row[:end]
    return row


def test_sequences_of_ids_end_rows_and_stay_in_them(llama: tuple[torch.nn.Module, Any]) -> None:
    _, fast = llama
    ids = tokens(1, 9)
    free = fast.generate(ids, max_new_tokens=16)[0].tolist()
    pair, later, swapped = free[12:14], free[14:17], [free[11], free[10], free[11]]
    for stop, expected_row in (
        (pair, ended(free, pair)),
        (torch.tensor(pair), ended(free, pair)),
        ([later, pair], ended(free, later, pair)),
        ([swapped], ended(free, swapped)),
        (free[8:10], free[:10]),  # begins in the prompt
        (free[4:6], free),  # lies in it: nothing of it was generated
    ):
        assert fast.generate(ids, max_new_tokens=16, stop=stop)[0].tolist() == expected_row
    assert len(ended(free, pair)) < len(free)


@pytest.mark.parametrize(
    ("pieces", "ends"),
    [
        (["st", "op"], True),
        (["stop"], True),
        (["st", "opera"], True),
        (["las", "topper"], True),
        (["s", "to", "pped"], True),
        (["stop", "at"], False),
        (["st", "op", "at"], False),
        (["st", "o"], False),
    ],
)
def test_a_string_ends_with_the_token_that_completes_it(pieces: list[str], ends: bool) -> None:
    class Words:
        def decode(self, ids: list[int]) -> str:
            return "".join(pieces[index] for index in ids)

    rule = StopRule((), "stop", Words())
    assert rule.ends_at(list(range(len(pieces))), start=0) is ends
    assert not rule.ends_at(list(range(len(pieces))), start=len(pieces))  # nothing generated yet


def test_half_characters_are_no_text() -> None:
    halves = ["é".encode()[:1], "é".encode()[1:], b"x"]

    class Bytes:
        def decode(self, ids: list[int]) -> str:
            return b"".join(halves[index] for index in ids).decode(errors="replace")

    rule = StopRule((), "é", Bytes())
    assert not rule.ends_at([2, 0], 0)
    assert rule.ends_at([2, 0, 1], 0)
    assert not rule.ends_at([0, 1, 2], 0)


@pytest.mark.parametrize(
    ("stop", "words", "message"),
    [
        ("end", None, "needs a tokenizer"),
        (["end", [3]], None, "needs a tokenizer"),
        ("", tokenizer(), "empty entry"),
        ([[]], None, "empty entry"),
        (3, None, "stop is a int"),
        ([[1.5]], None, "token id of stop"),
    ],
)
def test_what_cannot_stop_is_refused(stop: Any, words: Any, message: str, llama: tuple[torch.nn.Module, Any]) -> None:
    with pytest.raises(atb.InvalidArgumentError, match=message):
        llama[1].generate(tokens(1, 4), max_new_tokens=2, stop=stop, tokenizer=words)


class Recorder:
    """Keeps what a streamer is given."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self.ended = 0

    @property
    def tokens(self) -> list[int]:
        return [token for tokens in self.seen for token in tokens]

    def put(self, value: torch.Tensor) -> None:
        assert not self.ended
        self.seen.append(value.flatten().tolist())

    def end(self) -> None:
        self.ended += 1


def test_a_streamer_gets_what_transformers_gives_it(llama: tuple[torch.nn.Module, Any]) -> None:
    built, fast = llama
    ids = tokens(1, 9)
    mine, theirs = Recorder(), Recorder()
    row = fast.generate(ids, max_new_tokens=12, streamer=mine)
    expected(built, ids, max_new_tokens=12, streamer=theirs)
    assert mine.seen == theirs.seen and mine.ended == theirs.ended == 1
    assert mine.tokens == row[0].tolist()
    stopped = Recorder()
    stop = row[0, 11:13].tolist()
    assert fast.generate(ids, max_new_tokens=12, stop=stop, streamer=stopped)[0].tolist() == stopped.tokens
    assert stopped.tokens == ended(row[0].tolist(), stop) != row[0].tolist() and stopped.ended == 1


def test_transformers_streamers_work(llama: tuple[torch.nn.Module, Any], capsys: pytest.CaptureFixture[str]) -> None:
    words = tokenizer()
    row = llama[1].generate(tokens(1, 5), max_new_tokens=8, streamer=tf.TextStreamer(words, skip_prompt=True))
    assert capsys.readouterr().out == words.decode(row[0, 5:].tolist()) + "\n"


def test_a_streamer_takes_one_row_and_its_error_ends_the_call(llama: tuple[torch.nn.Module, Any]) -> None:
    _, fast = llama
    with pytest.raises(atb.InvalidArgumentError, match="2 rows; it takes one row"):
        fast.generate(tokens(2, 5), max_new_tokens=2, streamer=Recorder())

    class Broken(Recorder):
        def put(self, value: torch.Tensor) -> None:
            super().put(value)
            if len(self.seen) == 3:
                raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        fast.generate(tokens(1, 5), max_new_tokens=8, streamer=Broken())
    assert fast._engine.stats()["kv_blocks_in_use"] == 0 and fast._engine.stats()["requests"] == 0


def test_padding_is_found_without_a_mask_as_transformers_finds_it() -> None:
    built = model("llama", "sdpa")
    fast = atb_torch.compile(built)
    ids = tokens(3, 11)
    for row, count in enumerate((0, 4, 8)):
        ids[row, :count] = built.config.pad_token_id
    assert torch.equal(fast.generate(ids, max_new_tokens=8), expected(built, ids, max_new_tokens=8))
    ids[1, 7] = built.config.pad_token_id  # left out of the row there too
    assert torch.equal(fast.generate(ids, max_new_tokens=8), expected(built, ids, max_new_tokens=8))


def test_a_padding_token_that_ends_rows_is_no_padding() -> None:
    built = model("llama", "sdpa")
    fast = atb_torch.compile(built)
    ids = tokens(1, 9)
    ids[0, :4] = 5
    options = {"max_new_tokens": 8, "pad_token_id": 5, "eos_token_id": 5}
    assert torch.equal(fast.generate(ids, **options), expected(built, ids, **options))


def test_an_unknown_option_is_named(llama: tuple[torch.nn.Module, Any]) -> None:
    with pytest.raises(atb.InvalidArgumentError, match="option 'num_beams' is not known"):
        llama[1].generate(tokens(1, 4), num_beams=2)

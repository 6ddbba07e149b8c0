# SPDX-License-Identifier: Apache-2.0
"""generate() of compiled modules: the tokens of transformers, ragged batches, end tokens, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import atb
import atb_torch
import pytest
import torch
from families import FAMILIES, model, tokens

MARGIN = 1e-4  # a greedy choice between two logits nearer than this may fall either way
QUICK = ("llama", "gemma2", "gpt2", "opt")
CASES = [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in FAMILIES]


def attention_of(family: str) -> str:
    return "eager" if family == "gemma2" else "sdpa"


def expect_same_tokens(built: torch.nn.Module, actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal rows, up to the first choice in a row that transformers itself makes by less than MARGIN."""
    for row, (mine, theirs) in enumerate(zip(actual, expected, strict=True)):
        differing = (mine != theirs).nonzero()
        if len(differing) == 0:
            continue
        at = int(differing[0])
        with torch.no_grad():
            best = built(theirs[None, :at], use_cache=False).logits[0, -1].topk(2).values
        assert best[0] - best[1] < MARGIN, f"row {row} differs at {at} by a margin of {best[0] - best[1]}"


@pytest.mark.parametrize("family", CASES)
def test_greedy_tokens_are_those_of_transformers(family: str) -> None:
    built = model(family, attention_of(family))
    built.generation_config.eos_token_id = None  # 64 tokens, whatever they are
    ids = tokens(2, 9)
    actual = atb_torch.compile(built).generate(ids, max_new_tokens=64, eos_token_id=[])
    expected = built.generate(ids, max_new_tokens=64, do_sample=False)
    assert expected.shape == (2, 73)
    assert actual.shape == (2, 73)
    expect_same_tokens(built, actual, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_generate_from_their_logits(dtype: torch.dtype) -> None:
    built = model("llama", "sdpa").to(dtype)
    built.generation_config.eos_token_id = None
    ids = tokens(2, 9)
    actual = atb_torch.compile(built).generate(ids, max_new_tokens=8, eos_token_id=[])
    rows = ids
    for step in range(8):
        with torch.no_grad():
            best = built.float()(rows, use_cache=False).logits[:, -1].topk(2)
        sure = best.values[:, 0] - best.values[:, 1] > 0.1
        assert torch.equal(actual[sure, 9 + step], best.indices[sure, 0])
        rows = actual[:, : 10 + step]


def test_padded_rows_generate_what_they_generate_alone() -> None:
    fast = atb_torch.compile(model("llama", "sdpa"))
    ids = tokens(3, 11)
    for side in ("left", "right"):
        mask = torch.ones_like(ids)
        for row, count in enumerate((0, 4, 8)):
            mask[row, slice(0, count) if side == "left" else slice(11 - count, 11)] = 0
        together = fast.generate(ids, mask, max_new_tokens=8, eos_token_id=[])
        assert torch.equal(together[:, :11], ids)
        for row in range(3):
            alone = fast.generate(ids[row][mask[row].bool()][None], max_new_tokens=8, eos_token_id=[])
            assert torch.equal(together[row, 11:], alone[0, -8:]), f"row {row}, padded on its {side}"


def test_an_end_token_ends_its_row_and_stays_in_it() -> None:
    fast = atb_torch.compile(model("llama", "sdpa"))
    ids = tokens(2, 9)
    free = fast.generate(ids, max_new_tokens=12, eos_token_id=[])[:, 9:]
    end = int(free[0, 3])
    first = [row.tolist().index(end) if end in row.tolist() else len(row) - 1 for row in free]
    ended = fast.generate(ids, max_new_tokens=12, eos_token_id=end, pad_token_id=0)[:, 9:]
    assert ended.shape[1] == max(first) + 1
    for row in range(2):
        assert ended[row, : first[row] + 1].tolist() == free[row, : first[row] + 1].tolist()
        assert ended[row, first[row] + 1 :].eq(0).all()


def test_none_is_no_end_token_though_the_model_has_one() -> None:
    built = model("llama", "sdpa")
    fast = atb_torch.compile(built)
    ids = tokens(1, 9)
    free = fast.generate(ids, max_new_tokens=12, eos_token_id=[])
    built.generation_config.eos_token_id = int(free[0, 11])
    assert fast.generate(ids, max_new_tokens=12).shape[1] <= 12
    assert torch.equal(fast.generate(ids, max_new_tokens=12, eos_token_id=None), free)


def test_sampling_repeats_with_its_seed() -> None:
    fast = atb_torch.compile(model("llama", "sdpa"))
    options = {"max_new_tokens": 16, "temperature": 1.0, "top_k": 20, "eos_token_id": []}
    ids = tokens(1, 5)
    first = fast.generate(ids, seed=3, **options)
    assert torch.equal(first, fast.generate(ids, seed=3, **options))
    assert not torch.equal(first, fast.generate(ids, seed=4, **options))


def test_rows_draw_as_they_would_alone_with_seeds_of_their_own() -> None:
    fast = atb_torch.compile(model("llama", "sdpa"))
    ids = tokens(1, 5)
    options = {"max_new_tokens": 12, "temperature": 1.0, "eos_token_id": []}
    rows = fast.generate(ids.repeat(4, 1), seed=1, **options)
    assert len({tuple(row) for row in rows.tolist()}) == 4
    for index, row in enumerate(rows):
        assert torch.equal(row, fast.generate(ids, seed=1 + index, **options)[0])
    last = fast.generate(ids.repeat(2, 1), seed=2**63 - 1, **options)
    assert torch.equal(last[1], fast.generate(ids, seed=0, **options)[0])


@pytest.mark.parametrize(
    ("ids", "mask", "message"),
    [
        (torch.zeros(1, 4), None, "expected integers"),
        (torch.ones(1, 4, dtype=torch.bool), None, "expected integers"),
        ([[1, 2]], None, "input_ids is a list; expected a tensor"),
        ("text", None, "input_ids is a str; expected a tensor"),
        ({"input_ids": tokens(1, 4)}, None, "input_ids is a dict; expected a tensor"),
        (None, None, "input_ids is a NoneType; expected a tensor"),
        (tokens(1, 4), [[1, 1, 1, 1]], "attention_mask is a list; expected a tensor"),
        (torch.ones(4, dtype=torch.int64), None, "batch, tokens"),
        (tokens(1, 4), torch.ones(1, 3), "attention_mask is"),
        (tokens(1, 4), torch.tensor([[1, 0, 1, 1]]), "hole between 0 and 3"),
        (tokens(1, 4), torch.zeros(1, 4), "all zero"),
        (torch.full((1, 4), 97), None, "token id 97"),
    ],
)
def test_what_cannot_be_generated_from_is_refused(ids: torch.Tensor, mask: torch.Tensor | None, message: str) -> None:
    with pytest.raises(atb.Error, match=message):
        atb_torch.compile(model("llama", "sdpa")).generate(ids, mask, max_new_tokens=2)


class Bidirectional(torch.nn.Module):
    """Every position attends to all: nothing that a cache could serve."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(97, 16)
        self.qkv = torch.nn.Linear(16, 48)
        self.head = torch.nn.Linear(16, 97)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.embed(input_ids)).unsqueeze(1).chunk(3, dim=-1)
        return self.head(torch.nn.functional.scaled_dot_product_attention(q, k, v).squeeze(1))


def test_a_model_that_looks_ahead_cannot_be_cached() -> None:
    fast = atb_torch.compile(Bidirectional().eval())
    with pytest.raises(atb.UnsupportedError, match=r"\[insert_kv_cache\]"):
        fast.generate(tokens(1, 5), max_new_tokens=2)


class ByLength(torch.nn.Module):
    """A decoder of one causal attention whose embedded input goes through `decide`."""

    def __init__(self, decide: Callable[[torch.nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(31, 16)
        self.places = torch.nn.Embedding(24, 16)
        self.qkv = torch.nn.Linear(16, 48)
        self.head = torch.nn.Linear(16, 31)
        self.decide = decide

    def forward(self, idx: torch.Tensor) -> torch.Tensor:
        x = self.decide(self, idx, self.embed(idx))
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, dim=-1)
        return self.head(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1))


def test_a_table_of_positions_ends_sequences() -> None:
    def place(module: torch.nn.Module, idx: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        assert idx.shape[1] <= 24
        return x + module.places(torch.arange(idx.shape[1]))

    torch.manual_seed(0)
    model = ByLength(place).eval()
    ids = torch.randint(0, 31, (2, 9))
    made = atb_torch.compile(model, threads=1).generate(ids, max_new_tokens=40)
    assert made.shape[1] in (24, 25)  # the last token is made, but not read
    with torch.no_grad():
        assert torch.equal(model(made[:, :-1][:, :24])[:, 8:].argmax(-1), made[:, 9:])


def _rows_alone(idx: torch.Tensor) -> bool:
    return idx.shape[0] == 1


@pytest.mark.parametrize(
    "decided",
    [
        _rows_alone,
        lambda idx: idx.shape[0] > 4,
        lambda idx: idx.shape[0] % 2 == 1,
        lambda idx: idx.shape[0] == 3,
        lambda idx: idx.shape[0] > 300,
    ],
    ids=["one", "many", "odd", "three", "hundreds"],
)
def test_a_module_that_decides_by_its_batch_is_refused(decided: Callable[[torch.Tensor], bool]) -> None:
    fast = atb_torch.compile(ByLength(lambda _, idx, x: x * 3 if decided(idx) else x).eval(), threads=1)
    with pytest.raises(atb.UnsupportedError, match="ByLength decides by the size of its batch"):
        fast.generate(torch.ones(1, 9, dtype=torch.int64))


def test_a_module_that_decides_by_a_number_at_one_row_is_refused() -> None:
    fast = atb_torch.compile(ByLength(lambda _, idx, x: x * (3 if _rows_alone(idx) else 2)).eval(), threads=1)
    with pytest.raises(atb.UnsupportedError, match=r"ByLength decides by the size of its batch \(input_ids.shape\[0\]"):
        fast.generate(torch.ones(1, 9, dtype=torch.int64))


def test_a_module_that_does_something_else_for_one_token_is_refused() -> None:
    fast = atb_torch.compile(ByLength(lambda _, idx, x: x * 3 if idx.shape[1] == 1 else x).eval(), threads=1)
    with pytest.raises(atb.UnsupportedError, match="ByLength decides by the length of its input"):
        fast.generate(torch.ones(1, 9, dtype=torch.int64))


@pytest.mark.parametrize("axis", [0, 1])
def test_another_path_to_the_same_numbers_generates(axis: int) -> None:
    torch.manual_seed(1)
    model = ByLength(lambda _, idx, x: (x + x) * 1.5 if idx.shape[axis] == 1 else x * 3).eval()
    ids = torch.randint(0, 31, (1, 1))
    made = atb_torch.compile(model, threads=1).generate(ids, max_new_tokens=6)
    with torch.no_grad():
        assert torch.equal(model(made[:, :-1]).argmax(-1), made[:, 1:])


@pytest.mark.parametrize("short", [False, True], ids=["odd", "short"])
def test_a_module_that_decides_by_its_length_is_refused(short: bool) -> None:
    def decide(_module: torch.nn.Module, idx: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        length = idx.shape[1]
        return x * 3 if (length < 5 if short else length % 2) else x

    with pytest.raises(atb.UnsupportedError, match="decides by the length of its input"):
        atb_torch.compile(ByLength(decide).eval(), threads=1).generate(torch.ones(1, 9, dtype=torch.int64))


KNOWN = (
    "max_new_tokens, temperature, top_k, top_p, seed, eos_token_id, pad_token_id, stop, streamer, tokenizer, "
    "attention_mask"
)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("do_sample", "temperature"),
        ("max_length", "max_new_tokens"),
        ("stop_token_ids", "eos_token_id"),
        ("ignore_eos", "eos_token_id=None"),
        ("generation_config", "as options"),
        ("repetition_penalty", "no penalties"),
        ("frequency", ""),
    ],
)
def test_an_unknown_option_is_answered_with_all_and_a_hint(name: str, hint: str) -> None:
    fast = atb_torch.compile(torch.nn.Identity().eval())  # no decoder: options are read first
    with pytest.raises(atb.InvalidArgumentError) as raised:
        fast.generate(tokens(1, 4), **{name: 1})
    assert str(raised.value).startswith(f"[generate] option {name!r} is not known")
    assert str(raised.value).endswith(f"known are {KNOWN}")
    assert hint in str(raised.value).split("; known are")[0]


@pytest.mark.parametrize("name", ["eos_token_id", "pad_token_id"])
@pytest.mark.parametrize("value", ["5", 5.0, True, ["5"], [None]], ids=str)
def test_end_and_padding_are_ids(name: str, value: object) -> None:
    with pytest.raises(atb.InvalidArgumentError, match=rf"^\[generate\] .*{name}"):
        atb_torch.compile(torch.nn.Identity().eval()).generate(tokens(1, 4), **{name: value})

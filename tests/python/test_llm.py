# SPDX-License-Identifier: Apache-2.0
"""`LLM` on the stand-in engine: shapes of results, what is given back, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import atb
import fake_core
import numpy as np
import pytest
import tokenizers
from atb import _core
from fake_core import Engine


@pytest.fixture
def llm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[atb.LLM]:
    """A model with one token a byte."""
    for name in ("Engine", "resolve_model_path", "set_log_level", "peak_rss_mb"):
        monkeypatch.setattr(_core, name, getattr(fake_core, name))
    # The stand-in raises its own classes; make them the library's.
    for name in ("InvalidArgument", "NotFound", "Unsupported", "Internal"):
        monkeypatch.setattr(fake_core, name, getattr(_core, name))
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    vocab = {letter: i for i, letter in enumerate(sorted(letters, key=byte_of))}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.save(str(tmp_path / "tokenizer.json"))
    monkeypatch.setattr(Engine, "script", [72, 105])
    monkeypatch.setattr(Engine, "instances", [])
    with atb.LLM(tmp_path) as llm:
        yield llm


def byte_of(letter: str) -> int:
    from atb.text.pieces import byte_level_alphabet

    return byte_level_alphabet()[letter]


def test_one_text_gives_a_list_of_one(llm: atb.LLM) -> None:
    (output,) = llm.generate("ab", max_new_tokens=5)
    assert (output.text, output.token_ids, output.prompt_token_ids) == ("Hi", [72, 105], [97, 98])
    assert output.finish_reason == "length"
    assert output.timing.prefill_tokens_per_s == 2 / 0.5
    assert output.timing.decode_tokens_per_s == 1 / 0.25
    assert set(output.to_dict()) == {"text", "token_ids", "prompt_token_ids", "finish_reason", "timing"}
    timing = {"load_s", "prefill_s", "decode_s", "prefill_tokens_per_s", "decode_tokens_per_s", "peak_rss_mb"}
    assert set(output.to_dict()["timing"]) == timing


def test_many_prompts(llm: atb.LLM) -> None:
    outputs = llm.generate(["a", [1, 2, 3], "bcd"])
    assert [output.prompt_token_ids for output in outputs] == [[97], [1, 2, 3], [98, 99, 100]]
    assert [output.text for output in outputs] == ["Hi"] * 3
    for ids in ([1, 2, 3], (1, 2, 3), np.array([1, 2, 3])):
        (output,) = llm.generate(ids)  # type: ignore[arg-type]
        assert output.prompt_token_ids == [1, 2, 3]


def test_options_reach_the_engine(llm: atb.LLM) -> None:
    llm.generate(
        "a", max_new_tokens=1, temperature=0.5, top_k=4, top_p=0.9, seed=7, stop_token_ids=[9], ignore_eos=True
    )
    assert Engine.instances[-1].submitted[-1] == {
        "prompt_ids": [97],
        "max_new_tokens": 1,
        "temperature": 0.5,
        "top_k": 4,
        "top_p": 0.9,
        "seed": 7,
        "stop_token_ids": [9],
        "ignore_eos": True,
    }


@pytest.mark.parametrize(
    ("prompts", "options"),
    [
        ("", {}),
        ([], {}),
        ([[]], {}),
        (["a", ""], {}),
        ("a\ud800", {}),
        ([1.5], {}),
        ([[2**64]], {}),
        (5, {}),
        ("a", {"max_tokens": 3}),
        ("a", {"max_new_tokens": 2**70}),
        ("a", {"temperature": "hot"}),
        ("a", {"seed": -1}),
        ("a", {"stop_token_ids": "ab"}),
    ],
)
def test_bad_input_is_one_clear_error(llm: atb.LLM, prompts: object, options: dict[str, object]) -> None:
    with pytest.raises(atb.InvalidArgumentError, match=r"^\[(generate|tokenizer)\] [^\n]+$"):
        llm.generate(prompts, **options)  # type: ignore[arg-type]
    assert llm.stats()["kv_blocks_in_use"] == 0


def test_requests_are_given_back_after_an_error(llm: atb.LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "fail_after", 1)
    with pytest.raises(atb.InternalError):
        llm.generate(["a", "b"])
    assert llm.stats()["kv_blocks_in_use"] == 0


def test_stream(llm: atb.LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "script", [72, 0xF0, 0x9F, 0x98, 0x80, 0xF0])
    stream = llm.stream("a")
    assert list(stream) == ["H", "😀", "\ufffd"]
    assert stream.output.text == "H😀\ufffd"
    assert stream.output.token_ids == Engine.script
    assert llm.stats()["kv_blocks_in_use"] == 0


def test_leaving_a_stream_cancels(llm: atb.LLM) -> None:
    for _ in llm.stream("a"):
        assert llm.stats()["kv_blocks_in_use"] == 1
        break
    assert llm.stats()["kv_blocks_in_use"] == 0
    assert Engine.instances[-1].cancelled == [1]


def test_closing_a_stream_cancels(llm: atb.LLM) -> None:
    stream = llm.stream("a")
    next(stream)
    with pytest.raises(atb.FailedPreconditionError):
        stream.output  # noqa: B018
    stream.close()
    assert llm.stats()["kv_blocks_in_use"] == 0
    assert list(stream) == []


def test_a_stream_that_is_never_read_costs_nothing(llm: atb.LLM) -> None:
    llm.stream("a")
    assert Engine.instances[-1].submitted == []


def test_perplexity_scores_every_token_but_the_first_once(llm: atb.LLM) -> None:
    for length in (2, 3, 63, 64, 65, 96, 97, 300):
        assert llm.log_likelihood("a" * length) == (-(length - 1), length - 1)
        assert llm.log_likelihood("a" * length, window=10) == (-(length - 1), length - 1)
    assert llm.perplexity("abc") == pytest.approx(2.718281828)
    with pytest.raises(atb.InvalidArgumentError):
        llm.perplexity("a")


def test_closed(llm: atb.LLM) -> None:
    llm.close()
    llm.close()
    with pytest.raises(atb.FailedPreconditionError, match="closed"):
        llm.generate("a")


def test_ids_work_without_a_tokenizer(llm: atb.LLM) -> None:
    (Path(llm.path) / "tokenizer.json").unlink()
    (output,) = llm.generate([[1, 2]])
    assert (output.token_ids, output.text) == ([72, 105], "")
    with pytest.raises(atb.NotFoundError, match=r"tokenizer\.json"):
        llm.generate("a")


def test_import_is_light() -> None:
    import subprocess
    import sys

    heavy = ["numpy", "torch", "transformers", "tokenizers", "typer", "rich", "jinja2"]
    check = f"import sys, atb; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, env=with_package_path())
    if "atb._core" in found.stderr:
        pytest.skip("atb._core is not built")
    assert found.stdout.strip() == "[]", found.stderr


def with_package_path() -> dict[str, str]:
    import os

    return os.environ | {"PYTHONPATH": str(Path(atb.__file__).parents[1])}

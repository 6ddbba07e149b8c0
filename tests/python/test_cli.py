# SPDX-License-Identifier: Apache-2.0
"""The command line on the stand-in engine: JSON shapes, one-line errors, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import atb
import fake_core
import pytest
from atb import _core
from atb.cli import common
from atb.cli.app import app
from fake_core import Engine
from test_llm import llm as llm_fixture  # noqa: F401
from typer.testing import CliRunner, Result


@pytest.fixture
def model(llm_fixture: atb.LLM, monkeypatch: pytest.MonkeyPatch) -> str:  # noqa: F811
    for name in ("explain_json", "inspect_json", "profile_json", "roofline"):
        monkeypatch.setattr(_core, name, getattr(fake_core, name))
    monkeypatch.setattr(common, "_debug", False)
    return llm_fixture.path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_generate_text(model: str) -> None:
    result = run("generate", model, "--prompt", "a")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Hi\n", "")


def test_generate_report(model: str) -> None:
    result = run("generate", model, "--prompt", "ab", "--report")
    assert result.exit_code == 0
    assert result.stdout.startswith("abHi\n")
    for part in ("SDPA", "2 of 2", "GateUp not matched at layer 1", "tokens/s"):
        assert part in result.stdout


def test_generate_json(model: str) -> None:
    one = json.loads(run("generate", model, "--prompt", "a", "--json").stdout)
    assert one["text"] == "Hi"
    assert one["timing"]["load_s"] == 0.125
    two = json.loads(run("generate", model, "--prompt", "a", "--prompt", "b", "--json").stdout)
    assert [output["prompt_token_ids"] for output in two] == [[97], [98]]


def test_generate_options(model: str) -> None:
    flags = "--max-new-tokens 1 --temperature 0 --precision exact --threads 2 --prefill-chunk 7 --stop-token-id 5"
    assert run("generate", model, "--prompt", "a", *flags.split()).exit_code == 0
    engine = Engine.instances[-1]
    assert engine.options["precision"] == "exact"
    assert engine.options["threads"] == 2
    assert engine.options["prefill_chunk"] == 7
    assert engine.submitted[0]["stop_token_ids"] == [5]


def test_explain(model: str) -> None:
    report = json.loads(run("explain", model, "--tokens", "2048", "--dtype", "f16", "--json").stdout)
    assert set(report) == {
        "layers",
        "tokens",
        "kernels_per_layer",
        "bytes_per_layer",
        "intermediate_bytes_per_layer",
        "patterns",
        "not_matched",
        "stages",
    }
    assert report["tokens"] == 2048
    text = run("explain", model).stdout
    assert "SDPA" in text
    assert "3,400.0 MB" in text
    assert run("explain", "--config", str(Path(model) / "tokenizer.json"), "--json").exit_code == 0
    assert run("explain").exit_code == 2


def test_bench(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "script", [1] * 4)
    trace = tmp_path / "x.trace.json"
    flags = ["--prompt-tokens", "8", "--new-tokens", "4", "--batch", "3", "--trace", str(trace), "--json"]
    result = run("bench", model, *flags)
    assert result.exit_code == 0, result.stderr
    value = json.loads(result.stdout)
    assert {"prefill_tokens_per_s", "decode_tokens_per_s", "limits", "share", "peak_rss_mb"} <= set(value)
    assert value["limits"] == {"read_gb_s": 10.0, "f32_gflop_s": 50.0}
    # 50 GFLOP/s over 2 MFLOP a token; 10 GB/s over a third of 1 MB and 10 tokens of 1 kB
    assert value["share"]["prefill"] == pytest.approx(value["prefill_tokens_per_s"] / 25_000)
    assert value["share"]["decode"] == pytest.approx(value["decode_tokens_per_s"] * 343_333 / 10e9, rel=1e-4)
    assert json.loads(trace.read_text()) == {"traceEvents": []}
    assert "decode" in run("bench", model, "--new-tokens", "4").stdout


def test_bench_profile(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "script", [1] * 4)
    monkeypatch.setenv("COLUMNS", "160")
    flags = ["--prompt-tokens", "8", "--new-tokens", "4", "--rounds", "1", "--profile"]
    result = run("bench", model, *flags)
    assert result.exit_code == 0, result.stderr
    for text in ("│ q ", "waiting for parts", "elsewhere", "decode: 3 steps", "1 of them from park"):
        assert text in result.stdout
    value = json.loads(run("bench", model, *flags, "--json").stdout)
    assert value["profile"]["decode"]["nodes"][0]["op"] == "linear"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--batch", "0"),
        ("--rounds", "0"),
        ("--new-tokens", "1"),
        ("--prompt-tokens", "-3"),
        ("--threads", "-1"),
        ("--threads", "1025"),
        ("--prefill-chunk", str(2**40)),
    ],
)
def test_bench_ranges_are_errors_of_the_house(model: str, option: str, value: str) -> None:
    result = run("bench", model, option, value)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: [bench] {option}: {value}; allowed are ")
    assert result.stderr.count("\n") == 1


def test_inspect(model: str) -> None:
    assert json.loads(run("inspect", model, "--json").stdout)["family"] == "llama"
    assert "1 tensors" in run("inspect", model).stdout


def test_perplexity(model: str, tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("abc")
    value = json.loads(run("perplexity", model, "--file", str(file), "--json").stdout)
    assert value["perplexity"] == pytest.approx(2.718281828)
    assert value["tokens"] == 2
    assert "perplexity 2.7183 over 2 tokens" in run("perplexity", model, "--file", str(file)).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate", "no/such/model", "--prompt", "a"],
        ["generate", "MODEL", "--prompt", ""],
        ["generate", "MODEL", "--prompt", "a", "--device", "npu:0"],
        ["generate", "MODEL", "--prompt", "a", "--log-level", "loud"],
        ["generate", "MODEL", "--prompt", "a", "--chat"],
        ["inspect", "no/such/model"],
        ["explain", "no/such/model"],
        ["perplexity", "MODEL", "--file", "no/such/file"],
        ["perplexity", "MODEL", "--file", "BINARY"],
    ],
)
def test_errors_are_one_line(arguments: list[str], model: str, tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    arguments = [{"MODEL": model, "BINARY": str(binary)}.get(word, word) for word in arguments]
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: [")
    assert result.stderr.count("\n") == 1
    traced = run("--debug", *arguments)
    assert traced.exception is not None
    assert not isinstance(traced.exception, SystemExit)


def test_debug_may_stand_after_the_command(model: str) -> None:
    result = run("generate", model, "--prompt", "", "--debug")
    assert isinstance(result.exception, atb.InvalidArgumentError)


@pytest.mark.parametrize("arguments", [["nonsense"], ["generate"], ["generate", "m", "--nonsense"]])
def test_usage_errors(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_interrupt(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Engine, request: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "next", interrupted)
    result = run("generate", model, "--prompt", "a")
    assert (result.exit_code, result.stderr) == (130, "")
    assert Engine.instances[-1].live == {}


def test_version() -> None:
    assert run("--version").stdout == f"atb {atb.__version__}\n"

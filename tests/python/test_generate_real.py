# SPDX-License-Identifier: Apache-2.0
"""The command line and the library on the bundled model: text, JSON, limits and mistakes of the user."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import atb
import pytest

pytestmark = pytest.mark.real
# 2,278 tokens of plain English, sampled from the model itself (temperature 0.9) so that it knows none of it by heart.
PROSE = Path(__file__).parents[1] / "goldens" / "prose.txt"


@pytest.fixture(scope="module")
def llm(smollm2: Path) -> Iterator[atb.LLM]:
    with atb.LLM(smollm2, context=2048) as llm:
        yield llm


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """`atb` in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(Path(atb.__file__).parents[1])}
    command = [sys.executable, "-m", "atb", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


def json_of(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_text_is_about_the_prompt(llm: atb.LLM) -> None:
    (output,) = llm.generate("The capital of France is", max_new_tokens=16)
    assert "Paris" in output.text
    assert output.finish_reason in ("stop", "length")
    assert output.timing.prefill_s > 0


def test_stream_equals_generate(llm: atb.LLM) -> None:
    prompt = "Emoji for happy, sad and angry: 😀"
    (output,) = llm.generate(prompt, max_new_tokens=32)
    stream = llm.stream(prompt, max_new_tokens=32)
    assert "".join(stream) == output.text == stream.output.text
    assert stream.output.token_ids == output.token_ids


def test_chat_stops_at_the_end_token(llm: atb.LLM) -> None:
    prompt = llm.chat_prompt([{"role": "user", "content": "Say hello."}])
    assert prompt.endswith("<|im_start|>assistant\n")
    (output,) = llm.generate(prompt, max_new_tokens=200)
    assert output.finish_reason == "stop"
    assert "<|im_end|>" not in output.text
    assert 2 not in output.token_ids


def test_stop_tokens_of_the_caller(llm: atb.LLM) -> None:
    (free,) = llm.generate("1, 2, 3, 4,", max_new_tokens=12)
    stop = free.token_ids[5]
    (cut,) = llm.generate("1, 2, 3, 4,", max_new_tokens=12, stop_token_ids=[stop])
    assert cut.token_ids == free.token_ids[: free.token_ids.index(stop)]
    assert cut.finish_reason == "stop"


def test_sampling_follows_its_seed(llm: atb.LLM) -> None:
    def sample(seed: int) -> list[int]:
        return llm.generate("Once upon a time", max_new_tokens=24, temperature=1.0, seed=seed)[0].token_ids

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)


def test_command_line_json(smollm2: Path, llm: atb.LLM) -> None:
    value = json_of("generate", smollm2, "--prompt", "The capital of France is", "--max-new-tokens", 8)
    (expected,) = llm.generate("The capital of France is", max_new_tokens=8)
    assert value["text"] == expected.text
    assert value["token_ids"] == expected.token_ids
    for name in ("load_s", "prefill_s", "decode_s", "prefill_tokens_per_s", "decode_tokens_per_s", "peak_rss_mb"):
        assert value["timing"][name] > 0, name


def test_report_shows_text_fusion_and_speed(smollm2: Path) -> None:
    result = run("generate", smollm2, "--prompt", "The capital of France is", "--max-new-tokens", 8, "--report")
    assert result.returncode == 0, result.stderr
    for part in ("Paris", "QKV+RoPE", "SDPA", "GateUp", "AddNorm", "30 of 30", "tokens/s"):
        assert part in result.stdout


@pytest.mark.parametrize("kind", ["smollm2", "smollm2_directory"])
def test_every_pattern_in_every_layer(kind: str, request: pytest.FixtureRequest) -> None:
    report = json_of("explain", request.getfixturevalue(kind))
    assert report["layers"] == 30
    matched = {pattern["name"]: pattern["layers_matched"] for pattern in report["patterns"]}
    for name in ("QKV+RoPE", "SDPA", "GateUp", "AddNorm"):
        assert matched[name] == 30
    assert report["kernels_per_layer"]["after"] <= 8 < report["kernels_per_layer"]["before"]


def test_both_kinds_of_file_give_one_fused_graph(smollm2: Path, smollm2_directory: Path) -> None:
    options = ("--tokens", 128, "--dtype", "f32")
    assert json_of("explain", smollm2, *options) == json_of("explain", smollm2_directory, *options)


def test_explain_counts_what_a_trace_shows(smollm2: Path, llm: atb.LLM, tmp_path: Path) -> None:
    llm.start_trace()
    llm.generate("a", max_new_tokens=1)
    llm.write_trace(tmp_path / "x.trace.json")
    events = json.loads((tmp_path / "x.trace.json").read_text())["traceEvents"]
    nodes = [e for e in events if e.get("cat") == "node"]
    kernels = json_of("explain", smollm2)["kernels_per_layer"]["after"]
    assert len({e["name"] for e in nodes if e["args"].get("layer") == 7}) == 8
    assert len({e["name"] for e in nodes if e["args"].get("layer", -1) >= 0}) == pytest.approx(30 * kernels)


def test_explain_from_a_config_alone(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    report = json_of("explain", "--config", tmp_path / "config.json", "--tokens", 2048, "--dtype", "f16")
    assert report["bytes_per_layer"]["after"] <= 1.0e9
    assert 3.0e9 < report["bytes_per_layer"]["before"] < 3.8e9
    fusions = ("QKV+RoPE", "SDPA", "GateUp", "AddNorm")
    sizes = [pattern["bytes_per_layer"] for pattern in report["patterns"] if pattern["name"] in fusions]
    assert len(sizes) == len(fusions)
    assert sizes == sorted(sizes, reverse=True)


def test_inspect(smollm2: Path) -> None:
    facts = json_of("inspect", smollm2)
    assert facts["family"] == "llama"
    assert len(facts["tensors"]) == 272
    assert facts["context_length"] == 8192


def test_bench(smollm2: Path, tmp_path: Path) -> None:
    trace = tmp_path / "x.trace.json"
    flags = ("--prompt-tokens", 64, "--new-tokens", 8, "--rounds", 1, "--batch", 2, "--trace", trace)
    value = json_of("bench", smollm2, *flags)
    assert value["prefill_tokens_per_s"] > 0
    assert value["decode_tokens_per_s"] > 0
    assert all(limit > 0 for limit in value["limits"].values())
    assert all(share > 0 for share in value["share"].values())
    assert json.loads(trace.read_text())["traceEvents"]


def test_no_model_runs_on_the_null_device(smollm2: Path) -> None:
    with pytest.raises(atb.UnsupportedError, match="computes nothing"):
        atb.LLM(smollm2, device="null")


def test_fast_is_close_to_exact(smollm2: Path) -> None:
    text = PROSE.read_text()
    with atb.LLM(smollm2, precision="exact") as exact, atb.LLM(smollm2, precision="fast") as fast:
        ids = exact.tokenizer.encode(text)[:2000]
        assert len(ids) == 2000
        text = exact.tokenizer.decode(ids)
        values = exact.perplexity(text), fast.perplexity(text)
    assert abs(values[1] / values[0] - 1) < 0.01
    assert 1 < values[0] < 100


def test_log_likelihood_agrees_with_logits(llm: atb.LLM) -> None:
    import numpy as np

    ids = llm.tokenizer.encode("The quick brown fox jumps over the lazy dog.")
    logits = np.asarray(llm.logits([ids])[0]).astype(np.float64)
    logits -= logits.max(1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    expected = sum(log_p[i - 1, ids[i]] for i in range(1, len(ids)))
    total, count = llm.log_likelihood("The quick brown fox jumps over the lazy dog.")
    assert count == len(ids) - 1
    assert math.isclose(total, expected, rel_tol=1e-6)


@pytest.mark.parametrize(
    ("prompt", "names"),
    [([], ["empty"]), ([[1] * 2049], ["2049", "2048"]), ([[49152]], ["49152", "49151"]), ([[-1]], ["-1"])],
)
def test_bad_prompts(llm: atb.LLM, prompt: Any, names: list[str]) -> None:
    with pytest.raises(atb.InvalidArgumentError) as caught:
        llm.generate(prompt or [[]], max_new_tokens=1)
    assert [name for name in names if name not in str(caught.value)] == []
    assert llm.generate("a", max_new_tokens=1)[0].token_ids  # the next request is served
    assert llm.stats()["kv_blocks_in_use"] == 0


@pytest.mark.parametrize("device", ["npu:0", "cuda:0"])
def test_absent_devices(smollm2: Path, device: str) -> None:
    result = run("generate", smollm2, "--prompt", "a", "--device", device)
    assert result.returncode == 1
    assert "cpu" in result.stderr
    assert device.split(":")[0] in result.stderr
    assert result.stderr.count("\n") == 1


def cut_file(model: Path, folder: Path) -> Path:
    path = folder / "cut.gguf"
    path.write_bytes(model.read_bytes()[:50_000_000])
    return path


def unknown_family(model: Path, folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps({"model_type": "nobody", "architectures": ["NobodyForCausalLM"]}))
    return folder


def empty_file(model: Path, folder: Path) -> Path:
    (folder / "empty.gguf").touch()
    return folder / "empty.gguf"


def missing(model: Path, folder: Path) -> Path:
    return folder / "nothing.gguf"


@pytest.mark.parametrize("make", [cut_file, unknown_family, empty_file, missing])
@pytest.mark.parametrize("command", ["generate", "inspect", "explain"])
def test_bad_models(command: str, make: Any, smollm2: Path, tmp_path: Path) -> None:
    extra = ["--prompt", "a"] if command == "generate" else []
    result = run(command, make(smollm2, tmp_path), *extra)
    assert result.returncode == 1
    assert result.stderr.startswith("error: [")
    assert result.stderr.count("\n") == 1
    traced = run("--debug", command, make(smollm2, tmp_path), *extra)
    assert "Traceback" in traced.stderr
    assert traced.returncode not in (0, -6, -7, -11)


def test_a_hub_name_that_is_not_cached() -> None:
    result = run("inspect", "nobody/no-such-model")
    assert result.returncode == 1
    assert "nobody/no-such-model" in result.stderr
    assert "download" in result.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [("threads", 10**12), ("threads", 1.5), ("threads", True), ("kv_tokens", 10**30), ("context", "2")],
)
def test_bad_arguments_name_themselves(smollm2: Path, name: str, value: Any) -> None:
    with pytest.raises(atb.InvalidArgumentError, match="thread" if name == "threads" else name):
        atb.LLM(smollm2, **{name: value})


def test_arrays_of_ids_are_prompts(llm: atb.LLM) -> None:
    numpy = pytest.importorskip("numpy")
    one = llm.generate([504, 3575, 282], max_new_tokens=4)
    assert llm.generate(numpy.array([504, 3575, 282]), max_new_tokens=4)[0].token_ids == one[0].token_ids
    two = llm.generate(numpy.array([[504, 3575, 282], [504, 3575, 282]]), max_new_tokens=4)
    assert [output.token_ids for output in two] == [one[0].token_ids] * 2


def test_a_text_that_is_no_utf8_is_named(smollm2: Path, tmp_path: Path) -> None:
    file = tmp_path / "latin1.txt"
    file.write_bytes(b"caf\xe9")
    result = run("perplexity", smollm2, "--file", file)
    assert result.returncode == 1
    assert str(file) in result.stderr
    assert len(result.stderr.splitlines()) == 1

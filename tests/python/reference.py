# SPDX-License-Identifier: Apache-2.0
"""Reference models for the tests: tiny llamas with wide weights, as Hugging Face directories and as GGUF files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the reference needs torch")
transformers = pytest.importorskip("transformers", reason="the reference needs transformers")

VOCAB = 160
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

# Name -> what differs from four query heads, two key/value heads of 16, untied.
TINY: dict[str, dict[str, Any]] = {
    "gqa": {},
    "mha_tied": {"num_key_value_heads": 4, "tie_word_embeddings": True},
    "mqa": {"num_key_value_heads": 1},
    "head_dim": {"head_dim": 24, "tie_word_embeddings": True},
    "llama3_rope": {"rope": LLAMA3_ROPE, "num_attention_heads": 8},
}


def llama_config(rope: dict[str, Any] | None = None, **changes: Any) -> Any:
    """A llama config; `rope` holds rope parameters beside theta."""
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    parameters = {"rope_theta": 10000.0, **(rope or {"rope_type": "default"})}
    return transformers.LlamaConfig(**(sizes | changes), rope_parameters=parameters)


def wide_llama(config: Any, seed: int = 0) -> Any:
    """A model whose attention is far from uniform: scores have a standard deviation of about 3."""
    torch.manual_seed(seed)
    model = transformers.LlamaForCausalLM(config).eval()
    spread = 1 / config.hidden_size**0.5
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("norm.weight"):
                weight.uniform_(0.5, 1.5)
            elif "q_proj" in name or "k_proj" in name:
                weight.normal_(0, 3**0.5 * spread)
            elif "embed_tokens" in name:
                weight.normal_(0, 0.1)  # small, so that the epsilon of the first norm counts
            else:
                weight.normal_(0, spread)
    return model


def save(model: Any, directory: Path) -> Path:
    """The model as a Hugging Face directory."""
    model.save_pretrained(directory)
    return directory


def tokens(count: int, seed: int = 0, vocab: int = VOCAB) -> list[int]:
    """Random token ids; a shorter list with the same seed is a prefix."""
    ids: list[int] = np.random.default_rng(seed).integers(0, vocab, 4096)[:count].tolist()
    return ids


def reference_logits(model: Any, ids: Sequence[int]) -> np.ndarray:
    """f32 logits [tokens, vocab] of transformers."""
    with torch.no_grad():
        logits: np.ndarray = model(torch.tensor([list(ids)])).logits[0].float().numpy()
    return logits


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference over the standard deviation of the expected values."""
    assert actual.shape == expected.shape
    assert np.isfinite(actual).all()
    return float(np.abs(actual - expected).max() / expected.std())


@contextmanager
def mistake(name: str, model: Any) -> Iterator[None]:
    """Makes the reference wrong in one way, for tests that the comparison would notice."""
    from transformers.models.llama import modeling_llama

    layers = model.model.layers
    norms = [norm for layer in layers for norm in (layer.input_layernorm, layer.post_attention_layernorm)]
    with pytest.MonkeyPatch.context() as patch:
        if name == "scale":
            for layer in layers:
                patch.setattr(layer.self_attn, "scaling", layer.self_attn.scaling * 1.1)
        elif name == "rope_layout":
            patch.setattr(modeling_llama, "apply_rotary_pos_emb", _interleaved_rotary)
        elif name == "tiled_heads":
            patch.setattr(modeling_llama, "repeat_kv", lambda x, groups: x.repeat(1, groups, 1, 1))
        elif name == "eps":
            for norm in [*norms, model.model.norm]:
                patch.setattr(norm, "variance_epsilon", norm.variance_epsilon * 100)
        else:
            raise ValueError(name)
        yield


def changes_mathematics(name: str, config: Any) -> bool:
    """Tiling heads is the same as repeating them when there is one key/value head, or one for each query head."""
    return name != "tiled_heads" or 1 < config.num_key_value_heads < config.num_attention_heads


def _interleaved_rotary(q: Any, k: Any, cos: Any, sin: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
    half = cos.shape[-1] // 2
    cos, sin = (t[..., :half].repeat_interleave(2, dim=-1).unsqueeze(1) for t in (cos, sin))

    def turn(x: Any) -> Any:
        return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)

    return q * cos + turn(q) * sin, k * cos + turn(k) * sin


_GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def write_gguf(model: Any, path: Path, kind: str = "F32") -> Path:
    """The model as a GGUF file: matrices of type `kind`, norms in f32, rows of q and k in the format's order."""
    gguf = pytest.importorskip("gguf", reason="writing GGUF files needs the gguf package")
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(["t", "0", "t0", *(f"t{i}" for i in range(3, config.vocab_size))])
    writer.add_token_types([1] * config.vocab_size)
    writer.add_token_merges(["t 0"])
    writer.add_eos_token_id(1)
    quantized = getattr(gguf.GGMLQuantizationType, kind)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = weight.float().numpy()
        if "q_proj" in name:
            values = _gguf_rows(values, config.num_attention_heads)
        elif "k_proj" in name:
            values = _gguf_rows(values, config.num_key_value_heads)
        if values.ndim == 1 or kind == "F32":
            writer.add_tensor(_gguf_name(name), np.ascontiguousarray(values))
        else:
            writer.add_tensor(_gguf_name(name), gguf.quants.quantize(values, quantized), raw_dtype=quantized)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_rows(weight: np.ndarray, heads: int) -> np.ndarray:
    """Half-split rows (i, i + d/2) of each head become neighbours (2i, 2i + 1)."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def _gguf_name(name: str) -> str:
    fixed = {"model.embed_tokens.weight": "token_embd", "model.norm.weight": "output_norm", "lm_head.weight": "output"}
    if name in fixed:
        return fixed[name] + ".weight"
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{_GGUF_NAMES[rest.removesuffix('.weight')]}.weight"


def _without_quantization(config: Any) -> Any:
    fields = {name: value for name, value in config.to_dict().items() if name != "quantization_config"}
    return transformers.LlamaConfig(**fields)


def smollm2_directory(gguf_file: Path, cache: Path) -> Path:
    """The GGUF's weights, dequantized by transformers, as a Hugging Face directory with our tokenizer of the file."""
    from atb import _core
    from atb.text.gguf import build_backend

    facts = gguf_file.stat()
    directory = cache / f"{gguf_file.stem}-{facts.st_size}-{int(facts.st_mtime)}"
    if not (directory / "tokenizer.json").is_file():  # written last
        pytest.importorskip("gguf", reason="transformers reads GGUF files with the gguf package")
        model = transformers.AutoModelForCausalLM.from_pretrained(
            gguf_file.parent, gguf_file=gguf_file.name, dtype=torch.float32
        )
        plain = transformers.LlamaForCausalLM(_without_quantization(model.config))
        plain.load_state_dict(model.state_dict())
        plain.save_pretrained(directory)
        build_backend(_core.gguf_metadata(str(gguf_file))).save(str(directory / "tokenizer.json"))
    return directory

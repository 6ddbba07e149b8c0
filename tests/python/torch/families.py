# SPDX-License-Identifier: Apache-2.0
"""Small decoders of the families that must import, with weights drawn wide enough that every cap and window matters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers as tf

VOCABULARY = 97

_BASE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = {**_BASE, "num_key_value_heads": 2}
_WINDOW = {**_GROUPED, "sliding_window": 16}
_GEMMA = {**_WINDOW, "head_dim": 16, "query_pre_attn_scalar": 16}


def config(family: str) -> tf.PretrainedConfig:
    """The small configuration of a family."""
    tokens = {key: _BASE[key] for key in ("pad_token_id", "bos_token_id", "eos_token_id")}
    makers = {
        "llama": lambda: tf.LlamaConfig(**_GROUPED),
        "qwen2": lambda: tf.Qwen2Config(**_GROUPED),
        "qwen3": lambda: tf.Qwen3Config(**_GROUPED, head_dim=16),
        "mistral": lambda: tf.MistralConfig(**_WINDOW),
        "gemma2": lambda: tf.Gemma2Config(**_GEMMA),
        "gemma3": lambda: tf.Gemma3TextConfig(**_GEMMA),
        "phi": lambda: tf.PhiConfig(**_BASE, partial_rotary_factor=0.5),
        "phi3": lambda: tf.Phi3Config(**_GROUPED),
        "gpt2": lambda: tf.GPT2Config(vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, n_positions=512, **tokens),
        "gpt_neox": lambda: tf.GPTNeoXConfig(**_BASE, rotary_pct=0.5),
        "opt": lambda: tf.OPTConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            ffn_dim=112,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=512,
            word_embed_proj_dim=64,
            **{**tokens, "pad_token_id": 1, "bos_token_id": 2},
        ),
        "falcon": lambda: tf.FalconConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            new_decoder_architecture=False,
            multi_query=True,
            parallel_attn=True,
            bias=False,
            **tokens,
        ),
        "starcoder2": lambda: tf.Starcoder2Config(**_WINDOW),
        "olmo2": lambda: tf.Olmo2Config(**_GROUPED),
    }
    return makers[family]()


FAMILIES = (
    "llama",
    "qwen2",
    "qwen3",
    "mistral",
    "gemma2",
    "gemma3",
    "phi",
    "phi3",
    "gpt2",
    "gpt_neox",
    "opt",
    "falcon",
    "starcoder2",
    "olmo2",
)
CASES = [
    (family, attention)
    for family in FAMILIES
    for attention in ("eager", "sdpa")
    if (family, attention) != ("gemma2", "sdpa")  # softcapped scores have no sdpa form
]


def model(family: str, attention: str, seed: int = 0, width: float = 0.12, **changes: object) -> torch.nn.Module:
    """A model in eval mode whose matrices are drawn with standard deviation `width`, and vectors around their own."""
    settings = config(family)
    for name, value in changes.items():
        setattr(settings, name, value)
    built = tf.AutoModelForCausalLM.from_config(settings, attn_implementation=attention).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in built.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1:
                parameter.copy_(noise * width)
            else:
                parameter.add_(noise * 0.3)
    return built


def tokens(batch: int, length: int, seed: int = 1) -> torch.Tensor:
    """Random ids that are no special ones."""
    return torch.randint(3, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


def padding(batch: int, length: int, side: str) -> torch.Tensor:
    """A mask whose row i has i * length // (batch + 1) positions of padding on a side."""
    mask = torch.ones(batch, length, dtype=torch.long)
    for row in range(batch):
        count = row * length // (batch + 1)
        if side == "left":
            mask[row, :count] = 0
        else:
            mask[row, length - count :] = 0
    return mask


def distance(actual: torch.Tensor, expected: torch.Tensor, mask: torch.Tensor | None = None) -> float:
    """Largest difference in units of the standard deviation of the expected logits, over unpadded rows."""
    if mask is not None:
        actual, expected = actual[mask.bool()], expected[mask.bool()]
    return float((actual.double() - expected.double()).abs().max() / expected.double().std())


def documented(family: str) -> dict[str, str]:
    """The row of a family in the table of docs/pytorch.md, by column."""
    page = Path(__file__).resolve().parents[3] / "docs" / "pytorch.md"
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    header = next(row for row in rows if row[0] == "family")
    row = next(row for row in rows if row[0].split(" ")[0] == family)
    return dict(zip(header, row, strict=True))


def reported(report: dict[str, Any]) -> dict[str, str]:
    """The same columns of a report, but the first and the kernels before, which depend on the spelling of attention."""
    columns = {item["name"]: f"{item['layers_matched']}/{report['layers']}" for item in report["patterns"]}
    none = f"0/{report['layers']}"  # rare ones that neither matched nor missed are not in a report
    names = ("QKV+RoPE", "SDPA", "GateUp", "AddNorm", "NormLinear", "LinearActivation", "LinearResidual")
    return {name: columns.get(name, none) for name in names} | {"after": f"{report['kernels_per_layer']['after']:g}"}

# SPDX-License-Identifier: Apache-2.0
"""A decoder of declared blocks with a key/value cache, as users write one."""

from __future__ import annotations

from typing import Any

import atb_torch as atb
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, hidden_dim: int, num_heads: int, mlp_dim: int) -> None:
        super().__init__()
        self.attention_graph = atb.GraphOp(
            [
                atb.LayerNorm(eps=1e-5),
                atb.FlashAttention(num_heads=num_heads, causal=True, kv_cache=True),
                atb.Linear(out_features=hidden_dim),
                atb.ResidualAdd(),
            ]
        )
        self.mlp_graph = atb.GraphOp(
            [
                atb.LayerNorm(eps=1e-5),
                atb.Linear(out_features=mlp_dim),
                atb.SiLU(),
                atb.Linear(out_features=hidden_dim),
                atb.ResidualAdd(),
            ]
        )

    def forward(self, x: torch.Tensor, kv_cache: Any = None) -> Any:
        x, kv_cache = self.attention_graph(x, kv_cache=kv_cache)
        x = self.mlp_graph(x)
        return x, kv_cache


class Model(nn.Module):
    def __init__(self, vocab_size: int, hidden_dim: int, num_layers: int, num_heads: int, mlp_dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden_dim)
        self.layers = nn.ModuleList([Block(hidden_dim, num_heads, mlp_dim) for _ in range(num_layers)])
        self.norm = nn.LayerNorm(hidden_dim)
        self.lm_head = nn.Linear(hidden_dim, vocab_size, bias=False)
        self.kv_cache = atb.KVCache(
            num_layers=num_layers, num_heads=num_heads, head_dim=hidden_dim // num_heads, max_tokens=4096
        )

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(input_ids)
        for layer in self.layers:
            x, self.kv_cache = layer(x, kv_cache=self.kv_cache)
        return self.lm_head(self.norm(x))

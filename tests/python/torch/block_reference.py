# SPDX-License-Identifier: Apache-2.0
"""The mathematics of blocks in plain PyTorch, over the parameters of a GraphOp by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

State = dict[str, torch.Tensor]


def linear(state: State, name: str, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))


def layer_norm(state: State, name: str, x: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state.get(f"{name}.bias"), eps)


def rms_norm(state: State, name: str, x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * state[f"{name}.weight"]


def rotated(
    x: torch.Tensor, positions: torch.Tensor, theta: float = 1e4, dim: int = 0, interleaved: bool = False
) -> Any:
    """Rotary embedding of [B, heads, T, D] in halves (i, i + R/2), or in neighbours, at positions [T] or [B, T]."""
    dim = dim or x.shape[-1]
    frequencies = theta ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    angles = positions.float()[..., None] * frequencies
    cos, sin = (f(angles).to(x.dtype) for f in (torch.cos, torch.sin))
    if angles.dim() == 3:
        cos, sin = cos[:, None], sin[:, None]
    turned, rest = x[..., :dim], x[..., dim:]
    if interleaved:
        a, b = turned[..., ::2], turned[..., 1::2]
        pair = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    else:
        a, b = turned.chunk(2, -1)
        pair = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    return torch.cat((pair, rest), -1)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    heads: int,
    kv_heads: int = 0,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: int = 0,
    softcap: float = 0.0,
    mask: torch.Tensor | None = None,
    rotate: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> torch.Tensor:
    """Attention of [B, T, heads * D] by its definition; a bool mask says what is seen, a float one is added."""
    kv_heads = kv_heads or heads
    batch, tokens, keys = q.shape[0], q.shape[1], k.shape[1]
    q = q.view(batch, tokens, heads, -1).transpose(1, 2)
    k, v = (t.reshape(batch, keys, kv_heads, -1).transpose(1, 2) for t in (k, v))
    if rotate is not None:
        q, k = rotate(q), rotate(k)
    k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    rows, columns = torch.arange(tokens)[:, None], torch.arange(keys)[None, :]
    seen = torch.ones(tokens, keys, dtype=torch.bool)
    if causal:
        seen = columns <= rows
    if window:
        seen = seen & (columns > rows - window)
    scores = scores.masked_fill(~seen, float("-inf"))
    if mask is not None:
        scores = scores + mask if mask.is_floating_point() else scores.masked_fill(~mask, float("-inf"))
    return (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, tokens, -1)


def sliced(
    state: State, name: str, query: Any, key: Any, value: Any, sizes: tuple[int, int, int]
) -> list[torch.Tensor]:
    """Each stream's slice of one projection, as in nn.MultiheadAttention."""
    weights = state[f"{name}.weight"].split(sizes)
    biases = state[f"{name}.bias"].split(sizes) if f"{name}.bias" in state else (None, None, None)
    return [F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)]


def error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference, in standard deviations of what is expected."""
    assert actual.shape == expected.shape
    return ((actual.double() - expected.double()).abs().max() / expected.double().std()).item()


def rms_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    difference = (actual.double() - expected.double()).pow(2).mean().sqrt()
    return (difference / expected.double().pow(2).mean().sqrt()).item()


def randomize(module: torch.nn.Module, seed: int = 0) -> State:
    """Fills the parameters with numbers wide enough that mistakes show; returns copies of them by name."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            scale = 1.5 / parameter.shape[-1] ** 0.5 if parameter.dim() > 1 else 0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale + (parameter.dim() == 1) * 0.5)
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}

# SPDX-License-Identifier: Apache-2.0
"""A small decoder whose attention is masked by a given function, and ways in which PyTorch code spells causality."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, arange, full, ones, tril, triu, zeros

LONGEST = 24  # positions, and the size of masks that are held as buffers
VOCABULARY = 97
INF = math.inf
LOWEST = torch.finfo(torch.float32).min

Masking = Callable[["Layer", Tensor], Tensor]
Spelling = tuple[Masking, dict[str, Tensor]]


class Layer(torch.nn.Module):
    """Attention. `mask(self, scores)` gives what softmax reads, of scaled scores [B, heads, T, T]."""

    def __init__(self, mask: Masking, **buffers: Tensor) -> None:
        super().__init__()
        self.mask = mask
        self.qkv = torch.nn.Linear(32, 96)
        self.out = torch.nn.Linear(32, 32)
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, 32] -> the same."""
        length = x.shape[1]
        q, k, v = (part.view(-1, length, 2, 16).transpose(1, 2) for part in self.qkv(x).split(32, dim=-1))
        scores = self.mask(self, q @ k.transpose(-2, -1) / math.sqrt(16))
        return x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, length, 32))


class Decoder(torch.nn.Module):
    """Token ids [B, T] -> logits [B, T, V] through two layers of attention alone."""

    def __init__(self, mask: Masking, **buffers: Tensor) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, 32)
        self.places = torch.nn.Embedding(LONGEST, 32)
        self.layers = torch.nn.ModuleList(Layer(mask, **buffers) for _ in range(2))
        self.head = torch.nn.Linear(32, VOCABULARY)
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(std=0.3, generator=generator)

    def forward(self, ids: Tensor) -> Tensor:
        """The logits."""
        x = self.embed(ids) + self.places(arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def size(scores: Tensor) -> tuple[int, int]:
    """[T, T]"""
    return scores.shape[-2], scores.shape[-1]


def lower(scores: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The triangle of keys up to the query."""
    return tril(ones(size(scores), dtype=dtype))


def upper(scores: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The triangle of keys behind the query."""
    return triu(ones(size(scores), dtype=dtype), diagonal=1)


def part(buffer: Tensor, scores: Tensor) -> Tensor:
    """The first T rows and columns."""
    return buffer[..., : scores.shape[-2], : scores.shape[-1]]


def transposed_triangle(length: int) -> Tensor:
    """As PyTorch's own tutorials wrote it."""
    mask = (triu(ones(length, length)) == 1).transpose(0, 1)
    return mask.float().masked_fill(mask == 0, -INF).masked_fill(mask == 1, 0.0)


def window_of(length: int, width: int) -> Tensor:
    """1 for the last `width` keys up to each query."""
    return tril(ones(length, length)) - tril(ones(length, length), diagonal=-width)


_M = LONGEST
_LOWER = tril(ones(_M, _M))
_LOWEST = torch.finfo(torch.float32).min

# Scores filled in their place.
FILLED: dict[str, Spelling] = {
    "tril == 0": (lambda m, s: s.masked_fill(lower(s) == 0, -INF), {}),
    "tril == 0, -1e9": (lambda m, s: s.masked_fill(lower(s) == 0, -1e9), {}),
    "tril == 0, -1e4": (lambda m, s: s.masked_fill(lower(s) == 0, -1e4), {}),
    "tril == 0, lowest": (lambda m, s: s.masked_fill(lower(s) == 0, torch.finfo(s.dtype).min), {}),
    "fill, then a mask": (
        lambda m, s: s.masked_fill(lower(s) == 0, LOWEST) + torch.where(lower(s) == 1, 0.0, LOWEST),
        {},
    ),
    "tril == 0, lowest f16": (lambda m, s: s.masked_fill(lower(s) == 0, -65504.0), {}),
    "tril < 1": (lambda m, s: s.masked_fill(lower(s) < 1, -INF), {}),
    "tril of integers": (lambda m, s: s.masked_fill(lower(s, torch.long) == 0, -INF), {}),
    "tril of twos": (lambda m, s: s.masked_fill(tril(full(size(s), 2.0)) != 2, -INF), {}),
    "tril of bool, not": (lambda m, s: s.masked_fill(~lower(s, torch.bool), -INF), {}),
    "tril.logical_not": (lambda m, s: s.masked_fill(lower(s).logical_not(), -INF), {}),
    "triu.bool": (lambda m, s: s.masked_fill(upper(s).bool(), -INF), {}),
    "triu of bool": (lambda m, s: s.masked_fill(upper(s, torch.bool), -1e9), {}),
    "triu == 1": (lambda m, s: s.masked_fill(upper(s) == 1, -INF), {}),
    "triu != 0": (lambda m, s: s.masked_fill(upper(s) != 0, -INF), {}),
    "triu > 0": (lambda m, s: s.masked_fill(upper(s) > 0, -INF), {}),
    "arange, not": (lambda m, s: s.masked_fill(~(arange(size(s)[0])[None] <= arange(size(s)[0])[:, None]), -INF), {}),
    "arange >": (lambda m, s: s.masked_fill(arange(size(s)[0])[None] > arange(size(s)[0])[:, None], -INF), {}),
    "where tril == 1": (lambda m, s: torch.where(lower(s) == 1, s, -INF), {}),
    "where, a tensor": (lambda m, s: torch.where(lower(s).bool(), s, torch.tensor(-1e9)), {}),
    "where, full_like": (lambda m, s: torch.where(lower(s).bool(), s, torch.full_like(s, -1e9)), {}),
    "twice": (lambda m, s: s.masked_fill(upper(s, torch.bool), -1e9).masked_fill(lower(s) == 0, -1e9), {}),
    "beside a sum": (lambda m, s: (s + (1 - lower(s)) * -1e9).masked_fill(lower(s) == 0, -1e9), {}),
    "then scaled": (lambda m, s: s.masked_fill(upper(s).bool(), -INF) / 0.5, {}),
    "-1e9, then scaled": (lambda m, s: s.masked_fill(lower(s) == 0, -1e9) * 0.25, {}),
}

# Numbers added to scores.
ADDED: dict[str, Spelling] = {
    "triu of full": (lambda m, s: s + triu(full(size(s), -INF), diagonal=1), {}),
    "triu of full, in place": (lambda m, s: s + full(size(s), -INF).triu_(1), {}),
    "triu of full -1e9": (lambda m, s: s + triu(full(size(s), -1e9), diagonal=1), {}),
    "(1 - tril) * -1e9": (lambda m, s: s + (1.0 - lower(s)) * -1e9, {}),
    "(1 - tril) * -1e4": (lambda m, s: s + (1.0 - lower(s)) * -1e4, {}),
    "(1 - tril) * lowest": (lambda m, s: s + (1.0 - lower(s)) * torch.finfo(s.dtype).min, {}),
    "triu * -1e9": (lambda m, s: s + upper(s) * -1e9, {}),
    "minus (1 - tril) * 1e9": (lambda m, s: s - (1.0 - lower(s)) * 1e9, {}),
    "zeros filled": (lambda m, s: s + zeros(size(s)).masked_fill(~lower(s, torch.bool), -INF), {}),
    "log": (lambda m, s: s + torch.log(lower(s)), {}),
    "Transformer": (lambda m, s: s + torch.nn.Transformer.generate_square_subsequent_mask(size(s)[0]), {}),
    "transposed triu": (lambda m, s: s + transposed_triangle(size(s)[0]), {}),
    "then scaled": (lambda m, s: (s + triu(full(size(s), -INF), diagonal=1)) * 0.5, {}),
}

# Masks held as buffers, of which the first T rows and columns are taken.
HELD: dict[str, Spelling] = {
    "tril == 0": (lambda m, s: s.masked_fill(part(m.held, s) == 0, -INF), {"held": _LOWER}),
    "tril [1, 1] == 0": (lambda m, s: s.masked_fill(part(m.held, s) == 0, -1e9), {"held": _LOWER[None, None]}),
    "bytes": (lambda m, s: s.masked_fill(part(m.held, s) == 0, -INF), {"held": _LOWER.byte()}),
    "integers": (lambda m, s: s.masked_fill(part(m.held, s) == 0, -INF), {"held": _LOWER.long()}),
    "bool": (lambda m, s: s.masked_fill(~part(m.held, s), -INF), {"held": _LOWER.bool()}),
    "logical_not": (lambda m, s: s.masked_fill(part(m.held, s).logical_not(), -INF), {"held": _LOWER.bool()}),
    "triu.bool": (
        lambda m, s: s.masked_fill(m.held.bool()[: size(s)[0], : size(s)[1]], -INF) / 0.5,
        {"held": triu(ones(_M, _M), diagonal=1)},
    ),
    "where": (lambda m, s: torch.where(part(m.held, s), s, torch.full([], _LOWEST)), {"held": _LOWER.bool()[None]}),
    "added": (lambda m, s: s + part(m.held, s), {"held": triu(full((_M, _M), -INF), diagonal=1)}),
    "added [1, 1]": (lambda m, s: s + part(m.held, s), {"held": triu(full((1, 1, _M, _M), -1e9), diagonal=1)}),
    "(1 - tril) * -1e9": (lambda m, s: s + (1.0 - part(m.held, s)) * -1e9, {"held": _LOWER}),
    "positions": (
        lambda m, s: s.masked_fill(m.held[:, : size(s)[1]] > m.held[:, : size(s)[0]].mT, -INF),
        {"held": arange(_M)[None]},
    ),
    "window": (lambda m, s: s.masked_fill(part(m.held, s) == 0, -INF), {"held": window_of(_M, 5)}),
}


def _flawed() -> Tensor:
    table = _LOWER.clone()
    table[7, 3] = 0
    return table


# Near misses, and what says so: `generate()`.
NEAR_MISSES: dict[str, tuple[Spelling, str]] = {
    "one ahead": ((lambda m, s: s.masked_fill(tril(ones(size(s)), 1) == 0, -INF), {}), r"keys from 0 to p \+ 1, not"),
    "not itself": ((lambda m, s: s.masked_fill(tril(ones(size(s)), -1) == 0, -1e9), {}), "keys from 0 to p - 1, not"),
    "turned": ((lambda m, s: s.masked_fill(upper(s) == 0, -1e9), {}), r"keys from p \+ 1 to the last, not"),
    "fill of 0": ((lambda m, s: s.masked_fill(lower(s) == 0, 0.0), {}), "found a fill of 0, needs -inf or one"),
    "fill of -100": (
        (lambda m, s: s.masked_fill(lower(s) == 0, -100.0), {}),
        "found a fill of -100, needs -inf or one",
    ),
    "added -100": ((lambda m, s: s + (1 - lower(s)) * -100.0, {}), "adds 0 or -100; a key is seen by 0 and hidden by"),
    "twos compared with 1": ((lambda m, s: s.masked_fill(tril(full(size(s), 2.0)) != 1, -1e9), {}), "hides every key"),
    "one wrong entry": (
        (lambda m, s: s.masked_fill(part(m.held, s) == 0, -INF), {"held": _flawed()[None, None]}),
        "more than batch and key position",
    ),
    "one wrong number": (
        (lambda m, s: s + part(m.held, s), {"held": torch.log(_flawed())[None]}),
        "held is neither one number nor two",
    ),
    "held one ahead": (
        (lambda m, s: s + part(m.held, s), {"held": triu(full((_M, _M), -INF), diagonal=2)}),
        r"keys from 0 to p \+ 1, not",
    ),
}

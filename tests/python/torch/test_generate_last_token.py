# SPDX-License-Identifier: Apache-2.0
"""generate() of decoders whose head reads the last token alone, in each way to write that; and what is not the last."""

from __future__ import annotations

from collections.abc import Callable

import atb
import atb_torch
import pytest
import torch
from torch import nn

pytestmark = pytest.mark.real

VOCAB, WIDTH, HEADS, PLACES = 61, 32, 4, 40
MARGIN = 1e-4  # greedy choices of the tests are surer than this


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).split(WIDTH, dim=2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.ln_2(x))))


Select = Callable[[torch.Tensor], torch.Tensor]


class Decoder(nn.Module):
    """Token and position tables, two layers, and a head that reads `select` of the last norm."""

    def __init__(self, select: Select, after: Select = lambda logits: logits) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(PLACES, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.select, self.after = select, after

    def forward(self, idx: torch.Tensor, targets: torch.Tensor | None = None) -> tuple[torch.Tensor, None]:
        assert idx.shape[1] <= PLACES
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.after(self.lm_head(self.select(self.ln_f(x)))), None


def decoder(select: Select, after: Select = lambda logits: logits) -> Decoder:
    torch.manual_seed(3)
    built = Decoder(select, after).eval()
    with torch.no_grad():
        built.lm_head.weight.mul_(8)
    return built


def token_ids(rows: int, length: int) -> torch.Tensor:
    return torch.randint(1, VOCAB, (rows, length), generator=torch.Generator().manual_seed(length))


@torch.no_grad()
def greedy(built: nn.Module, row: torch.Tensor, count: int) -> list[int]:
    """Tokens by recomputing the whole sequence."""
    ids = row[None]
    for _ in range(count):
        best = built(ids)[0].reshape(-1, VOCAB)[-1].topk(2)
        assert best.values[0] - best.values[1] > MARGIN
        ids = torch.cat([ids, best.indices[:1][None]], dim=1)
    return ids[0, len(row) :].tolist()


SPELLINGS: dict[str, Select] = {
    "list": lambda x: x[:, [-1], :],
    "range": lambda x: x[:, -1:, :],
    "select": lambda x: x[:, -1],
    "length": lambda x: x[:, x.shape[1] - 1],
    "narrow": lambda x: x.narrow(1, x.shape[1] - 1, 1),
    "rows": lambda x: x[torch.arange(x.shape[0]), -1],
    "tokens first": lambda x: x.transpose(0, 1)[-1],
    "new axis": lambda x: x[:, -1].unsqueeze(1),
}
AFTER = {name: SPELLINGS[name] for name in ("list", "range", "select")}
CASES = [pytest.param(decoder(select), id=name) for name, select in SPELLINGS.items()]
CASES += [pytest.param(decoder(lambda x: x, select), id=f"{name} of logits") for name, select in AFTER.items()]


@pytest.mark.parametrize("built", CASES)
def test_rows_generate_what_they_do_by_recomputation(built: Decoder) -> None:
    fast = atb_torch.compile(built, threads=1)
    ids = token_ids(3, 9)
    expected = [greedy(built, row, 12) for row in ids]
    assert fast.generate(ids, max_new_tokens=12)[:, 9:].tolist() == expected
    with torch.no_grad():
        whole = built(ids)[0]
        assert (fast(ids)[0] - whole).abs().max() / whole.std() < 1e-4


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["list", "select"])
def test_padded_rows_generate_what_they_do_alone(side: str, name: str) -> None:
    built = decoder(SPELLINGS[name])
    ids, mask = token_ids(3, 10), torch.ones(3, 10, dtype=torch.int64)
    for row, count in enumerate((0, 4, 9)):
        mask[row, slice(0, count) if side == "left" else slice(10 - count, 10)] = 0
    made = atb_torch.compile(built, threads=1).generate(ids, mask, max_new_tokens=8)
    for row in range(3):
        assert made[row, 10:].tolist() == greedy(built, ids[row][mask[row].bool()], 8), f"row {row}"


def test_samples_are_those_of_all_logits() -> None:
    options = {"max_new_tokens": 16, "temperature": 1.0, "top_k": 20, "seed": 5}
    every, last = (atb_torch.compile(decoder(select), threads=1) for select in (lambda x: x, SPELLINGS["select"]))
    assert torch.equal(every.generate(token_ids(2, 6), **options), last.generate(token_ids(2, 6), **options))


def test_positions_end_sequences() -> None:
    made = atb_torch.compile(decoder(SPELLINGS["list"]), threads=1).generate(token_ids(1, 33), max_new_tokens=60)
    assert made.shape[1] in (PLACES, PLACES + 1)  # the last token is made, but not read


@pytest.mark.parametrize(
    ("select", "reason"),
    [
        (lambda x: x[:, [-2], :], "takes tokens T - 2 to T - 1; only the last one may be taken"),
        (lambda x: x[:, -2], "takes tokens T - 2 to T - 1; only the last one may be taken"),
        (lambda x: x[:, 0], "takes tokens 0 to 1; only the last one may be taken"),
        (lambda x: x[:, [0], :], "takes tokens 0 to 1; only the last one may be taken"),
        (lambda x: x[:, [0, -1], :], "only rows of a table, or the last token as x"),
        (lambda x: x.mean(1), "works along the token axis, so it mixes tokens"),
        (lambda x: x + x[:, -1:], "combines a token axis with the last token axis"),
    ],
    ids=["list of -2", "-2", "first", "list of first", "first and last", "mean", "added to all"],
)
def test_other_tokens_are_refused(select: Select, reason: str) -> None:
    with pytest.raises(atb.UnsupportedError, match=r"^\[insert_kv_cache\] .*" + reason.replace("[", r"\[")):
        atb_torch.compile(decoder(select), threads=1).generate(token_ids(1, 5), max_new_tokens=2)


def test_the_last_token_cannot_be_attended_from() -> None:
    class Summary(Decoder):
        def forward(self, idx: torch.Tensor, targets: torch.Tensor | None = None) -> tuple[torch.Tensor, None]:
            x = self.layers[0](self.wte(idx))
            return self.lm_head(self.layers[1](x[:, -1:] + torch.zeros_like(x))), None

    torch.manual_seed(0)
    with pytest.raises(atb.UnsupportedError, match=r"combines a last token axis with the token axis"):
        atb_torch.compile(Summary(lambda x: x).eval(), threads=1).generate(token_ids(1, 5), max_new_tokens=2)

# SPDX-License-Identifier: Apache-2.0
"""The README's examples run as they are written, given what they name, and its numbers are those of the benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from documented import PAGES, blocks  # noqa: E402

README = PAGES.parent / "README.md"


class Decoder(torch.nn.Module):
    """What a reader may have: token ids in, logits out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(32, 16), torch.nn.Linear(16, 32)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(input_ids)[:, None]
        return self.head((x + torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True))[:, 0])


def test_the_examples_run(smollm2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [language_model, compiled, block] = [source for _, source in blocks(README, "python")]
    exec(language_model.replace("path/to/model", str(smollm2)), {})
    assert "Paris" in capsys.readouterr().out
    names = {
        "model": Decoder().eval(),
        "input_ids": torch.randint(0, 32, (2, 5)),
        "x": torch.randn(2, 7, 64),
    }
    exec(compiled, names)
    assert names["ids"].shape == (2, 105)
    exec(block, names)
    assert names["y"].shape == (2, 7, 64)
    assert capsys.readouterr().out.count("as it runs") == 2


def test_the_numbers_are_those_of_the_benchmarks() -> None:
    text = README.read_text(encoding="utf-8")
    section = text[text.index("## How fast") : text.index("## Where things are")]
    assert re.search(r"2026-\d\d-\d\d, Intel\nXeon", section), "no date and machine"
    measured = (PAGES / "benchmarks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .*(?:prefill|decode) \| (.*) \|$", section, re.MULTILINE)
    assert len(rows) == 6
    for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", " ".join(rows)):
        assert f" {number} " in measured, number

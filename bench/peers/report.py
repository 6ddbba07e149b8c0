# SPDX-License-Identifier: Apache-2.0
"""The table: Markdown for people, JSON for programs, and the copy in docs/benchmarks.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.peers.cold_start import ColdStart
from bench.peers.measure import Pair, Speed

BEGIN = "<!-- bench-peers: begin -->"
END = "<!-- bench-peers: end -->"
NONE = "-"

COLUMNS = (
    "workload",
    "precision",
    "program",
    "prefill tokens/s",
    "of limit",
    "ATB is",
    "decode tokens/s",
    "of limit",
    "ATB is",
    "first token s",
    "peak MB",
    "note",
)


def markdown(pairs: Sequence[Pair], starts: Sequence[ColdStart], facts: dict[str, Any]) -> str:
    """The whole report as Markdown."""
    lines = [f"- {key}: {value}" for key, value in facts.items()]
    rows = [row for pair in pairs for row in _rows(pair)]
    parts = ["\n".join(lines), _table(COLUMNS, rows)]
    if starts:
        parts += [
            "Process start to the first token of a prompt of 16, files in the page cache:",
            _table(("precision", "program", "seconds", "note"), [_start_row(start) for start in starts]),
        ]
    return "\n\n".join(parts) + "\n"


def as_json(pairs: Sequence[Pair], starts: Sequence[ColdStart], facts: dict[str, Any]) -> str:
    """The same as JSON, with every reading of the machine's limits."""
    rows = [{**asdict(pair), "ratio": ratios(pair), "share": shares(pair)} for pair in pairs]
    return json.dumps({"facts": facts, "pairs": rows, "cold_start": [asdict(start) for start in starts]}, indent=2)


def ratios(pair: Pair) -> dict[str, float]:
    """Ours over theirs; empty without both."""
    ours, theirs = pair.ours, pair.theirs
    if theirs is None or not theirs.prefill_tokens_per_s or not ours.prefill_tokens_per_s:
        return {}
    return {
        "prefill": ours.prefill_tokens_per_s / theirs.prefill_tokens_per_s,
        "decode": ours.decode_tokens_per_s / theirs.decode_tokens_per_s,
        "first_token": ours.first_token_s / theirs.first_token_s,
        "peak_rss": ours.peak_rss_mb / theirs.peak_rss_mb if theirs.peak_rss_mb else 0.0,
    }


def shares(pair: Pair) -> dict[str, dict[str, float]]:
    """Part of this machine's limit that each reached; limits and bytes are the same for both."""

    def of(speed: Speed | None) -> dict[str, float]:
        if speed is None or not pair.prefill_limit or not pair.decode_limit:
            return {}
        return {
            "prefill": speed.prefill_tokens_per_s / pair.prefill_limit,
            "decode": speed.decode_tokens_per_s / pair.decode_limit,
        }

    return {"ours": of(pair.ours), "theirs": of(pair.theirs)}


def write_docs(path: Path, report: str) -> None:
    """Replaces what stands between the markers. ValueError without them."""
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path.name} has no lines {BEGIN} and {END}; put them where the table belongs")
    path.write_text(f"{before}{BEGIN}\n\n{report}\n{END}{after}", encoding="utf-8")


def _rows(pair: Pair) -> list[list[str]]:
    part, ratio = shares(pair), ratios(pair)
    head = [str(pair.workload), pair.precision]
    ours = [*head, "**ATB**", *_figures(pair.ours, part["ours"], {}), _limits(pair)]
    note = "; ".join(text for text in (pair.problem, f"greedy: {pair.guard}" if pair.guard else "") if text)
    theirs = [*head, pair.peer, *_figures(pair.theirs, part["theirs"], ratio), note]
    return [ours, theirs]


def _figures(speed: Speed | None, part: dict[str, float], ratio: dict[str, float]) -> list[str]:
    if speed is None or not speed.prefill_tokens_per_s:
        return [NONE] * 8
    return [
        _number(speed.prefill_tokens_per_s),
        _percent(part.get("prefill")),
        _times(ratio.get("prefill")),
        _number(speed.decode_tokens_per_s),
        _percent(part.get("decode")),
        _times(ratio.get("decode")),
        f"{speed.first_token_s:.3f}" + _in_brackets(ratio.get("first_token")),
        f"{speed.peak_rss_mb:.0f}" + _in_brackets(ratio.get("peak_rss")),
    ]


def _limits(pair: Pair) -> str:
    """The readings of the run; they tell how quiet the machine was."""
    if not pair.read_gb_s:
        return ""
    read, peak = pair.read_gb_s, pair.f32_gflop_s
    return f"{min(read):.1f}-{max(read):.1f} GB/s, {min(peak):.0f}-{max(peak):.0f} GFLOP/s"


def _start_row(start: ColdStart) -> list[str]:
    return [start.precision, start.name, NONE if start.seconds is None else f"{start.seconds:.2f}", start.problem]


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(columns), ["---"] * len(columns), *[[_cell(cell) for cell in row] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{value:.0%}"


def _times(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}x"


def _in_brackets(value: float | None) -> str:
    return "" if not value else f" (ATB {value:.0%})"

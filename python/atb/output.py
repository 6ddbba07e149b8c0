# SPDX-License-Identifier: Apache-2.0
"""What a generation returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Timing:
    """Seconds and rates of one request. Prefill ends with the first generated token; decode is every token after it."""

    load_s: float
    prefill_s: float
    decode_s: float
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    peak_rss_mb: float

    @classmethod
    def from_engine(cls, timing: dict[str, Any], load_s: float, peak_rss_mb: float) -> Timing:
        """Adds rates to what the engine measured."""
        prefill_s, decode_s = timing["prefill_s"], timing["decode_s"]
        decoded = max(timing["generated_tokens"] - 1, 0)
        return cls(
            load_s=load_s,
            prefill_s=prefill_s,
            decode_s=decode_s,
            prefill_tokens_per_s=rate(timing["prompt_tokens"], prefill_s),
            decode_tokens_per_s=rate(decoded, decode_s),
            peak_rss_mb=peak_rss_mb,
        )


@dataclass(frozen=True)
class GenerationOutput:
    """One prompt's result. `finish_reason` is "stop", "length" or "cancelled"; a stop token is not part of it."""

    text: str
    token_ids: list[int]
    prompt_token_ids: list[int]
    finish_reason: str
    timing: Timing

    def to_dict(self) -> dict[str, Any]:
        """The object that `atb generate --json` prints."""
        return asdict(self)


def rate(count: float, seconds: float) -> float:
    """Events per second; 0 where nothing was measured."""
    return count / seconds if seconds > 0 else 0.0

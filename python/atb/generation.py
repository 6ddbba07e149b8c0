# SPDX-License-Identifier: Apache-2.0
"""Driving requests through the native engine: how they are submitted, waited for, streamed and given back."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from atb.errors import FailedPreconditionError, InvalidArgumentError
from atb.output import GenerationOutput
from atb.text.stream import TextStream

_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True)
class SamplingOptions:
    """How tokens are chosen. Temperature 0 is greedy; top_k 0 and top_p 1 keep every token.

    `stop_token_ids` replaces the model's own end tokens (None keeps them); `ignore_eos` generates through all of them.
    """

    max_new_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> SamplingOptions:
        """Checks names and types; ranges are the engine's matter."""
        known = cls.__dataclass_fields__
        for name in options:
            if name not in known:
                raise unknown_option(name, known, {"eos_token_id": "pass stop_token_ids"})
        sampling = cls(**options)
        for name in ("max_new_tokens", "top_k", "seed"):
            as_int(getattr(sampling, name), name)
        for name in ("temperature", "top_p"):
            if not isinstance(getattr(sampling, name), int | float):
                raise InvalidArgumentError(f"[generate] {name} is {getattr(sampling, name)!r}; expected a number")
        if sampling.seed < 0:
            raise InvalidArgumentError(f"[generate] seed is {sampling.seed}; expected 0 or more")
        return sampling

    def of_row(self, row: int) -> SamplingOptions:
        """Of a row of a batch, which draws as it would alone with seed + row; behind the largest seed comes 0."""
        return replace(self, seed=(int(self.seed) + row) % _INT64.stop)


# Options of transformers' generate, and what they are here.
_HINTS = {
    "do_sample": "temperature says it: 0 is greedy, above it samples",
    "max_length": "pass max_new_tokens, which counts the new tokens alone",
    "max_tokens": "pass max_new_tokens",
    "generation_config": "pass what it holds as options",
    "repetition_penalty": "there are no penalties",
    "num_beams": "there is no beam search",
}


def unknown_option(name: str, known: Iterable[str], hints: Mapping[str, str]) -> InvalidArgumentError:
    """The error of an option of `generate` that there is not: a hint where it goes by another name, and all options."""
    known = list(known)
    hint = {**_HINTS, **hints}.get(name)
    return InvalidArgumentError(
        f"[generate] option {name!r} is not known{f': {hint}' if hint else ''}; known are {', '.join(known)}"
    )


def submit(engine: Any, prompt_ids: list[int], sampling: SamplingOptions) -> int:
    """Queues one prompt; returns the engine's number for the request."""
    stop = sampling.stop_token_ids
    request: int = engine.submit(
        prompt_ids,
        max_new_tokens=sampling.max_new_tokens,
        temperature=float(sampling.temperature),
        top_k=sampling.top_k,
        top_p=float(sampling.top_p),
        seed=sampling.seed,
        stop_token_ids=None if stop is None else as_ids(stop, "stop_token_ids"),
        ignore_eos=sampling.ignore_eos,
    )
    return request


def drive(engine: Any, requests: Sequence[int]) -> list[tuple[list[int], str]]:
    """Takes turns until every request has finished; returns the tokens and the finish reason of each."""
    tokens: dict[int, list[int]] = {request: [] for request in requests}
    reasons: dict[int, str] = {}
    while len(reasons) < len(requests):
        for request in requests:
            if request in reasons:
                continue
            new, reason = engine.next(request)
            tokens[request] += new
            if reason is not None:
                reasons[request] = reason
    return [(tokens[request], reasons[request]) for request in requests]


def give_back(engine: Any, requests: Sequence[int]) -> None:
    """Stops what still runs and frees the KV blocks of every request."""
    for request in requests:
        engine.cancel(request)
        engine.release(request)


@dataclass
class _Progress:
    """What a stream has seen; kept apart from GenerationStream, so that dropping that one ends the generator."""

    request: int | None = None  # while it is submitted
    token_ids: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    output: GenerationOutput | None = None


# (request, token ids, text, finish reason) -> output
MakeOutput = Callable[[int, list[int], str, str], GenerationOutput]


class GenerationStream(Iterator[str]):
    """Text pieces of one request. Closing it, or dropping it half way, cancels the request and frees its KV blocks."""

    def __init__(
        self, engine: Any, prompt_ids: list[int], sampling: SamplingOptions, text: TextStream, make_output: MakeOutput
    ) -> None:
        self._engine = engine
        self._progress = _Progress()
        self._pieces = _pieces(engine, prompt_ids, sampling, text, make_output, self._progress)

    def __next__(self) -> str:
        """The next piece; never empty."""
        return next(self._pieces)

    def close(self) -> None:
        """Cancels the request if it still runs; from another thread, the one that reads the stream sees its end."""
        try:
            self._pieces.close()
        except ValueError:  # another thread is inside it
            request = self._progress.request
            if request is not None:
                self._engine.cancel(request)

    @property
    def output(self) -> GenerationOutput:
        """The whole result, once the stream has ended."""
        if self._progress.output is None:
            raise FailedPreconditionError("[stream] the stream has not ended; read it to its end first")
        return self._progress.output


def _pieces(
    engine: Any,
    prompt_ids: list[int],
    sampling: SamplingOptions,
    text: TextStream,
    make_output: MakeOutput,
    progress: _Progress,
) -> Generator[str, None, None]:
    request = progress.request = submit(engine, prompt_ids, sampling)
    try:
        reason = None
        while reason is None:
            tokens, reason = engine.next(request)
            progress.token_ids += tokens
            piece = text.push_all(tokens) + ("" if reason is None else text.finish())
            progress.text.append(piece)
            if reason is not None:
                progress.output = make_output(request, progress.token_ids, "".join(progress.text), reason)
            if piece:
                yield piece
    finally:
        progress.request = None
        give_back(engine, [request])


def is_int(value: Any) -> bool:
    """True for what can be used as an index, arrays of several elements and truth values aside."""
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def as_int(value: Any, name: str, where: str = "generate") -> int:
    """`value` as an integer of 64 bits; where: what the error begins with."""
    if not is_int(value) or operator.index(value) not in _INT64:
        raise InvalidArgumentError(f"[{where}] {name} is {value!r}; expected an integer of at most 64 bits")
    return int(value)


def as_ids(ids: Any, name: str = "a prompt", where: str = "generate") -> list[int]:
    """Token ids as plain integers; accepts lists, tuples, arrays and tensors of integers."""
    try:
        items = list(ids.tolist() if hasattr(ids, "tolist") else ids)  # an array gives all its numbers at once
    except TypeError:
        raise InvalidArgumentError(
            f"[{where}] {name} is a {type(ids).__name__}; expected text or a list of token ids"
        ) from None
    return [as_int(token, f"a token id of {name}", where) for token in items]

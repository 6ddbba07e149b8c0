# SPDX-License-Identifier: Apache-2.0
"""`LLM`: a model that generates text. The native engine does the work; this class speaks text and Python."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from atb import _core
from atb.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from atb.generation import GenerationStream, SamplingOptions, as_ids, as_int, drive, give_back, is_int, submit
from atb.output import GenerationOutput, Timing
from atb.report import Report
from atb.text.tokenizer import Tokenizer

Prompt = str | Sequence[int]


class LLM:
    """A loaded model. Several threads may call one LLM at once; each gets the text it would get alone."""

    def __init__(
        self,
        model: str | Path,
        device: str = "cpu",
        dtype: str = "auto",
        precision: str = "auto",
        threads: int | None = None,
        prefill_chunk: int | None = None,
        log_level: str | None = None,
        context: int | None = None,
        kv_tokens: int | None = None,
        frontend: str = "native",
        opt_level: int = 3,
    ) -> None:
        """Loads a Hugging Face directory, a .gguf file, or a model of the local Hugging Face cache by its hub name.

        precision: "exact" (weights and activations in f32), "fast" (int8 activations where weights are quantized), or
            "auto" (fast for quantized files, else exact).
        threads: workers; None takes what the affinity mask and the CPU quota allow.
        prefill_chunk: prompt tokens a step; None lets the engine choose. It never changes the result.
        context: most tokens of one sequence; None is the model's own limit.
        kv_tokens: tokens that the key/value cache holds for all sequences together; None lets the engine choose.
        frontend: "native" reads the files itself, for the families that ATB knows; "torch" takes any causal language
            model of a Hugging Face directory through transformers and `torch.export` (needs both installed).
        opt_level: how far the graph is optimized, as for `Graph.compile`; a cache needs canonical form, so 0 is 1.
        Raises `atb.Error` (see `atb.errors`) with one line that says where, what and what to do.
        """
        if log_level is not None:
            _core.set_log_level(log_level)
        self.path = _core.resolve_model_path(str(model))
        self._open_engine: Any = _engine_opener(frontend)(
            self.path,
            device=device,
            dtype=dtype,
            precision=precision,
            threads=as_int(threads or 0, "threads", "model"),
            prefill_chunk=as_int(prefill_chunk or 0, "prefill_chunk", "model"),
            context=as_int(context or 0, "context", "model"),
            kv_tokens=as_int(kv_tokens or 0, "kv_tokens", "model"),
            opt_level=as_int(opt_level, "opt_level", "model"),
        )
        self._info: dict[str, Any] = self._open_engine.info()
        self._tokenizer: Tokenizer | None = None
        self._tokenizer_lock = threading.Lock()

    @property
    def engine(self) -> Any:
        """The native engine (`atb._core.Engine`), for tools that count tokens rather than read text."""
        engine = self._open_engine
        if engine is None:
            raise FailedPreconditionError("[llm] this LLM is closed; load the model again")
        return engine

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, built when first needed."""
        with self._tokenizer_lock:
            if self._tokenizer is None:
                self._tokenizer = Tokenizer.from_model(self.path)
            return self._tokenizer

    def generate(self, prompts: Prompt | Sequence[Prompt], **options: Any) -> list[GenerationOutput]:
        """Continues each prompt (text, or token ids); options are the fields of `SamplingOptions`.

        The prompts run as one ragged batch, without padding; one prompt gives a list of one. Prompt i draws with
        seed + i, as it would alone with that seed.
        """
        sampling = SamplingOptions.from_options(options)
        prompt_ids = [self._encode(prompt) for prompt in _as_list(prompts)]
        engine = self.engine
        requests: list[int] = []
        try:
            for index, ids in enumerate(prompt_ids):
                requests.append(submit(engine, ids, sampling.of_row(index)))
            finished = drive(engine, requests)
            return [
                GenerationOutput(self._text_of(tokens), tokens, ids, reason, self._timing(engine, request))
                for request, ids, (tokens, reason) in zip(requests, prompt_ids, finished, strict=True)
            ]
        finally:
            give_back(engine, requests)

    def stream(self, prompt: Prompt, **options: Any) -> GenerationStream:
        """Yields text as it is generated, never a part of a character. Leaving the loop cancels the request."""
        sampling = SamplingOptions.from_options(options)
        engine, ids = self.engine, self._encode(prompt)

        def make_output(request: int, token_ids: list[int], text: str, reason: str) -> GenerationOutput:
            return GenerationOutput(text, token_ids, ids, reason, self._timing(engine, request))

        return GenerationStream(engine, ids, sampling, self.tokenizer.stream(), make_output)

    def logits(self, sequences: Sequence[Sequence[int]]) -> list[Any]:
        """For each sequence of token ids an f32 matrix [tokens, vocabulary]: row t scores the token after ids[: t + 1].

        The matrices support the buffer protocol and DLPack: `numpy.asarray(m)` and `torch.from_dlpack(m)` copy nothing.
        """
        matrices: list[Any] = self.engine.logits([as_ids(ids, "a sequence", "logits") for ids in sequences])
        return matrices

    def log_likelihood(self, text: str, window: int | None = None) -> tuple[float, int]:
        """Sum of log p(token | those before it) over a text, and how many tokens were scored.

        A text longer than `window` tokens (default: the context) is scored in windows that overlap by half, so that
        every token but the first ones sees at least half a window.
        """
        ids = self.tokenizer.encode(text)
        limit = int(self._info["context_length"])
        window = min(window or limit, limit)
        if len(ids) < 2:
            raise InvalidArgumentError(f"[perplexity] the text has {len(ids)} tokens; expected at least 2")
        if window < 2:
            raise InvalidArgumentError(f"[perplexity] window is {window} tokens; expected at least 2")
        total, scored_to = 0.0, 1
        for start in range(0, len(ids), max(window // 2, 1)):
            part = ids[start : start + window]
            total += self.engine.log_likelihood(part, scored_to - start)
            scored_to = start + len(part)
            if scored_to == len(ids):
                break
        return total, len(ids) - 1

    def perplexity(self, text: str, window: int | None = None) -> float:
        """exp of the mean negative log likelihood of a text's tokens."""
        from math import exp

        total, count = self.log_likelihood(text, window)
        return exp(-total / count)

    def chat_prompt(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        """Prompt text for messages like {"role": "user", "content": "Hello"}, by the model's own chat template."""
        template = self.tokenizer.chat_template
        if template is None:
            raise FailedPreconditionError("[chat] the model has no chat template; pass a plain prompt")
        return template.render(messages, **variables)

    def stats(self) -> dict[str, Any]:
        """KV blocks in use and total, plans, bytes of weights, arena and cache."""
        stats: dict[str, Any] = self.engine.stats()
        return stats

    def info(self) -> dict[str, Any]:
        """Family, sizes, special tokens, precision, CPU target and load time of the model."""
        return dict(self._info)

    def report(self, tokens: int = 512) -> Report:
        """What was fused, for the graph in use and a step of `tokens`; it prints as a table and writes a page."""
        return Report.from_json(self.engine.report_json(tokens), title=f"Fusion of {Path(self.path).name}")

    def start_trace(self) -> None:
        """Starts recording which kernel ran when."""
        self.engine.start_trace()

    def write_trace(self, path: str | Path) -> None:
        """Writes what was recorded as a Chrome/Perfetto trace."""
        self.engine.write_trace(str(path))

    def close(self) -> None:
        """Frees the model once running requests are done. Later calls raise; closing twice is fine."""
        self._open_engine = None

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _encode(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        return as_ids(prompt)

    def _timing(self, engine: Any, request: int) -> Timing:
        return Timing.from_engine(engine.timing(request), self._info["load_s"], _core.peak_rss_mb())

    def _text_of(self, token_ids: list[int]) -> str:
        try:
            return self.tokenizer.decode(token_ids, continuation=True)
        except NotFoundError:  # a directory without tokenizer.json still runs on token ids
            return ""


def _engine_opener(frontend: str) -> Any:
    """What opens a path as a native engine."""
    if frontend == "native":
        return _core.Engine
    if frontend == "torch":
        from atb_torch.hf_directory import open_engine

        return open_engine
    raise InvalidArgumentError(f"[llm] frontend is {frontend!r}; allowed are native and torch")


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One text or one list of ids is one prompt; anything else is a list of prompts."""
    if isinstance(prompts, str):
        return [prompts]
    if not isinstance(prompts, Iterable):
        raise InvalidArgumentError(
            f"[generate] prompts is a {type(prompts).__name__}; expected text, token ids or a list of them"
        )
    items: list[Any] = list(prompts)
    if not items:
        raise InvalidArgumentError("[generate] no prompts; expected at least one")
    return [items] if all(is_int(item) for item in items) else items

# SPDX-License-Identifier: Apache-2.0
"""Builds a `tokenizers.Tokenizer` from the metadata of a GGUF file.

Two kinds are known: byte-level BPE (`gpt2`, with its named pre-tokenizer) and SentencePiece BPE (`llama`). The result
cuts text as the format's reference implementation does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from atb.errors import DataLossError, UnsupportedError
from atb.text.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

# Values of tokenizer.ggml.token_type.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

SPACE_MARK = "\u2581"  # how SentencePiece writes a space
ABSENT_BYTE = "<|absent byte|>"  # stands for bytes that a byte-level vocabulary has no token for; no token of the model


def field(metadata: Mapping[str, Any], key: str, kind: type, default: Any = None) -> Any:
    """The value of a key, `default` where it is absent; a value that is no `kind` is an error that names the key."""
    value = metadata.get(key)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise DataLossError(f"[tokenizer] {key} is {value!r:.40}; expected {kind.__name__}")
    return value


def build_backend(metadata: Mapping[str, Any]) -> Backend:
    """The tokenizer that the metadata describes; a clear error names what is missing or not known."""
    kind = field(metadata, "tokenizer.ggml.model", str)
    if kind == "gpt2":
        return _byte_level_bpe(metadata)
    if kind == "llama":
        return _sentencepiece_bpe(metadata)
    if kind is None:
        raise DataLossError("[tokenizer] tokenizer.ggml.model is missing; the GGUF file has no tokenizer")
    raise UnsupportedError(f"[tokenizer] tokenizer.ggml.model is {kind!r}; known are 'gpt2' and 'llama'")


def pre_tokenizer_of(metadata: Mapping[str, Any]) -> PreTokenizer:
    """The named pre-tokenizer of a byte-level BPE file; a file without a name means 'default'."""
    name = field(metadata, "tokenizer.ggml.pre", str, "default")
    if name not in PRE_TOKENIZERS:
        raise UnsupportedError(
            f"[tokenizer] tokenizer.ggml.pre is {name!r}; known are {', '.join(sorted(PRE_TOKENIZERS))}"
        )
    return PRE_TOKENIZERS[name]


def adds_bos(metadata: Mapping[str, Any]) -> bool:
    """Whether a prompt starts with the beginning-of-sequence token."""
    stated = metadata.get("tokenizer.ggml.add_bos_token")
    if stated is not None:
        return bool(stated)
    if metadata.get("tokenizer.ggml.model") == "llama":
        return True
    return pre_tokenizer_of(metadata).add_bos


def _array(metadata: Mapping[str, Any], key: str, kind: type | tuple[type, ...], name: str) -> list[Any]:
    """A list of `kind` that is not empty; `name` is how a message calls the kind."""
    value = metadata.get(key)
    if not isinstance(value, list) or not value:
        raise DataLossError(f"[tokenizer] {key} is missing or empty; the GGUF file has no complete tokenizer")
    if wrong := [item for item in value if not isinstance(item, kind)]:
        raise DataLossError(f"[tokenizer] {key} holds {wrong[0]!r:.40}; expected {name}")
    return value


def _texts(metadata: Mapping[str, Any], key: str) -> list[str]:
    """A list of texts. Bytes that are no UTF-8 arrive as lone surrogates, which the tokenizer library cannot take."""
    texts: list[str] = _array(metadata, key, str, "texts")
    for i, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError:
            stored = text.encode("utf-8", "surrogateescape")
            raise DataLossError(
                f"[tokenizer] {key}: entry {i} is not valid UTF-8 (bytes {stored[:16].hex(' ')}); convert the model"
                " again, or use its Hugging Face directory with its tokenizer.json"
            ) from None
    return texts


def _token_types(metadata: Mapping[str, Any], count: int) -> list[int]:
    key = "tokenizer.ggml.token_type"
    if metadata.get(key) is None:
        return [NORMAL] * count
    types: list[int] = _array(metadata, key, int, "integers")
    if len(types) != count:
        raise DataLossError(f"[tokenizer] {key} has {len(types)} entries; expected {count}")
    return types


def _add_special_tokens(backend: Backend, tokens: Sequence[str], types: Sequence[int]) -> None:
    """Makes the texts of control tokens and user-defined tokens be found before anything is cut."""
    from tokenizers import AddedToken

    control = [tokens[i] for i, t in enumerate(types) if t in (CONTROL, UNKNOWN) and tokens[i]]
    user = [tokens[i] for i, t in enumerate(types) if t == USER_DEFINED and tokens[i]]
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in control])
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in user])


def _byte_level_bpe(metadata: Mapping[str, Any]) -> Backend:
    from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    named = pre_tokenizer_of(metadata)
    tokens = _texts(metadata, "tokenizer.ggml.tokens")
    types = _token_types(metadata, len(tokens))
    vocab = {text: i for i, text in enumerate(tokens)}
    # The separator is the first space after the first character, so that a space itself can be merged.
    merges = [(m[:cut], m[cut + 1 :]) for m in _texts(metadata, "tokenizer.ggml.merges") if (cut := m.find(" ", 1)) > 0]
    # Bytes without a token are dropped, but only after merging: until then they keep their neighbours apart.
    vocab[ABSENT_BYTE] = len(tokens)
    try:
        model = BPE(vocab=vocab, merges=merges, ignore_merges=named.ignore_merges, unk_token=ABSENT_BYTE)
    except Exception as error:  # the library raises plain Exception
        raise DataLossError(f"[tokenizer] tokenizer.ggml.merges and tokens do not fit: {error}") from error
    backend = Tokenizer(model)
    splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in named.patterns]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, to_bytes])
    backend.decoder = decoders.ByteLevel()
    _add_special_tokens(backend, tokens, types)
    return backend


def _sentencepiece_bpe(metadata: Mapping[str, Any]) -> Backend:
    from tokenizers import Tokenizer, decoders, normalizers
    from tokenizers.models import BPE

    tokens = _texts(metadata, "tokenizer.ggml.tokens")
    types = _token_types(metadata, len(tokens))
    scores = _array(metadata, "tokenizer.ggml.scores", (int, float), "numbers")
    if len(scores) != len(tokens):
        raise DataLossError(f"[tokenizer] tokenizer.ggml.scores has {len(scores)} entries; expected {len(tokens)}")
    if not all(map(math.isfinite, scores)):
        raise DataLossError("[tokenizer] tokenizer.ggml.scores holds a number that is not finite")
    vocab = {text: i for i, text in enumerate(tokens)}
    unknown = next((tokens[i] for i, t in enumerate(types) if t == UNKNOWN), None)
    merges = _merges_from_scores(tokens, types, scores)
    backend = Tokenizer(BPE(vocab=vocab, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    steps: list[Any] = [normalizers.Prepend(SPACE_MARK)] if prefix else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE_MARK)])
    strip: list[Any] = [decoders.Strip(" ", 1, 0)] if prefix else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    _add_special_tokens(backend, tokens, types)
    return backend


def _merges_from_scores(tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Merge list in order of falling score: every way to cut a piece into two pieces of the vocabulary.

    Rank order equals score order only while no two pieces that can be merged share a score, so that is checked.
    """
    rank = {text: i for i, text in enumerate(tokens) if types[i] in (NORMAL, USER_DEFINED, UNUSED)}
    merges: list[tuple[float, int, int, str, str]] = []
    owner: dict[float, str] = {}
    for text, i in rank.items():
        cuts = [(text[:at], text[at:]) for at in range(1, len(text)) if text[:at] in rank and text[at:] in rank]
        if not cuts:
            continue
        other = owner.setdefault(scores[i], text)
        if other != text:
            raise UnsupportedError(
                f"[tokenizer] tokens {other!r} and {text!r} share the score {scores[i]}; such a vocabulary has no merge"
                " order of its own; use the model's Hugging Face directory with its tokenizer.json"
            )
        merges += [(-scores[i], rank[left], rank[right], left, right) for left, right in cuts]
    merges.sort(key=lambda m: m[:3])
    return [(left, right) for _, _, _, left, right in merges]

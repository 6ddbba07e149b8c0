# SPDX-License-Identifier: Apache-2.0
"""Named pre-tokenizers of GGUF byte-level BPE files (`tokenizer.ggml.pre`).

A name stands for a list of regular expressions. They are applied one after another; each splits every piece so far
into its matches and the text between them. Names and expressions are those of the format's own project.
"""

from __future__ import annotations

from dataclasses import dataclass

_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + _TAIL
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + _TAIL


@dataclass(frozen=True)
class PreTokenizer:
    """How text is cut before byte-pair merges."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False  # a piece that is a whole token is taken as it is
    add_bos: bool = False  # what a file without `add_bos_token` means


_BY_NAMES: dict[tuple[str, ...], PreTokenizer] = {
    ("gpt-2", "phi-2", "modern-bert"): PreTokenizer((_GPT2,)),
    ("smollm", "starcoder", "refact", "codeshell", "command-r"): PreTokenizer((r"\p{N}", _GPT2)),
    ("llama-bpe", "llama3", "llama-v3", "falcon3"): PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True),
    ("dbrx", "smaug-bpe"): PreTokenizer((_LLAMA3,)),
    ("qwen2", "stablelm2", "deepseek-r1-qwen"): PreTokenizer((_QWEN2,)),
    ("default",): PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    ("falcon",): PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
}

PRE_TOKENIZERS: dict[str, PreTokenizer] = {name: value for names, value in _BY_NAMES.items() for name in names}

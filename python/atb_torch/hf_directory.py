# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face directory through transformers and export: `atb.LLM(path, frontend="torch")`."""

from __future__ import annotations

import sys
from typing import Any

import torch
from atb.errors import NotFoundError, UnsupportedError

from atb_torch.decoder import make_engine


def open_engine(path: str, *, dtype: str = "auto", context: int = 0, **options: Any) -> Any:
    """The native engine of the causal language model in a directory, with the directory's dtype.

    Needs transformers. Each weight is freed as it is packed; what the engine reads in place (embeddings) stays.
    Raises `atb.UnsupportedError` for a model that cannot be imported or cached, with the operator and its module path.
    """
    try:
        import transformers
    except ImportError as error:
        raise NotFoundError(
            f'[model] frontend="torch" needs transformers; run {sys.executable} -m pip install transformers'
        ) from error
    if dtype != "auto":
        raise UnsupportedError(f"[model] dtype '{dtype}'; this build runs weights as they are stored: use auto")
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype="auto", local_files_only=True)
    except (OSError, ValueError) as error:
        raise NotFoundError(f"[model] transformers cannot load {path}: {error}") from error
    with torch.no_grad():
        return make_engine(model.eval(), context=context or None, release=True, **options)

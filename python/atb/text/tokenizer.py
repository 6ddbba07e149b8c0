# SPDX-License-Identifier: Apache-2.0
"""A model's tokenizer, from a Hugging Face directory (tokenizer.json) or from the metadata of a GGUF file.

Safe to use from many threads: nothing in it changes after it is built, but for a table that grows with equal values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atb import _core
from atb.errors import DataLossError, InvalidArgumentError, NotFoundError
from atb.text import gguf
from atb.text.chat import ChatTemplate
from atb.text.pieces import reader_for
from atb.text.stream import TextStream

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend


class Tokenizer:
    """Text to token ids and back."""

    def __init__(
        self,
        backend: Backend,
        *,
        prefix: Sequence[int] = (),
        suffix: Sequence[int] = (),
        use_post_processor: bool = False,
        bos: int | None = None,
        chat_template: ChatTemplate | None = None,
    ) -> None:
        """`prefix` and `suffix` are put around a prompt; with `use_post_processor` the backend adds its own."""
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._prefix, self._suffix = list(prefix), list(suffix)
        self._use_post_processor = use_post_processor
        self._bos = bos
        self.chat_template = chat_template
        self._read, self._strips_space = reader_for(_state(backend.decoder))
        self._added = backend.get_added_tokens_decoder()
        self._absent = backend.token_to_id(gguf.ABSENT_BYTE)
        self._pieces: dict[int, bytes | None] = {}

    @classmethod
    def from_model(cls, path: str | Path) -> Tokenizer:
        """Tokenizer of a model: a directory with tokenizer.json, or a .gguf file."""
        path = Path(path)
        return cls.from_directory(path) if path.is_dir() else cls.from_gguf(_core.gguf_metadata(str(path)))

    @classmethod
    def from_directory(cls, directory: str | Path) -> Tokenizer:
        """Reads tokenizer.json; what a prompt starts with (a BOS token or not) is what its post-processor says."""
        from tokenizers import Tokenizer as Backend

        path = Path(directory) / "tokenizer.json"
        if not path.is_file():
            raise NotFoundError(
                f"[tokenizer] {path} does not exist; save the model's fast tokenizer there, or pass token ids"
            )
        try:
            backend = Backend.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            raise DataLossError(f"[tokenizer] {path} cannot be read: {_one_line(error)}") from error
        template = ChatTemplate.from_directory(directory)
        bos = backend.token_to_id(template.bos_token) if template.bos_token else None
        return cls(backend, use_post_processor=True, bos=bos, chat_template=template)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """Builds the tokenizer that GGUF metadata describes."""
        backend = gguf.build_backend(metadata)
        bos = gguf.field(metadata, "tokenizer.ggml.bos_token_id", int)
        eos = gguf.field(metadata, "tokenizer.ggml.eos_token_id", int)
        tokens = metadata["tokenizer.ggml.tokens"]
        for key, token in (("bos", bos), ("eos", eos)):
            if token is not None and not 0 <= token < len(tokens):
                raise DataLossError(f"[tokenizer] {key}_token_id is {token}; the file has {len(tokens)} tokens")
        prefix = [bos] if bos is not None and gguf.adds_bos(metadata) else []
        suffix = [eos] if eos is not None and metadata.get("tokenizer.ggml.add_eos_token") else []
        template = ChatTemplate(
            gguf.field(metadata, "tokenizer.chat_template", str),
            bos_token=tokens[bos] if bos is not None else "",
            eos_token=tokens[eos] if eos is not None else "",
        )
        return cls(backend, prefix=prefix, suffix=suffix, bos=bos, chat_template=template)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text. The text of a control token becomes that token. A BOS is never put before a BOS."""
        if not isinstance(text, str):
            raise InvalidArgumentError(f"[tokenizer] a prompt is a {type(text).__name__}; expected text or ids")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(
                f"[tokenizer] character {error.start} of the text is a lone surrogate; expected valid Unicode text"
            ) from None
        post_process = add_special_tokens and self._use_post_processor
        ids: list[int] = self._backend.encode(text, add_special_tokens=post_process).ids
        if self._absent is not None and self._absent in ids:
            ids = [token for token in ids if token != self._absent]
        if add_special_tokens:
            ids = [*self._prefix, *ids, *self._suffix]
            if self._bos is not None and ids[:2] == [self._bos, self._bos]:
                ids = ids[1:]  # templates write the BOS themselves
        return ids

    def decode(self, ids: Iterable[int], continuation: bool = False) -> str:
        """Text of tokens, without control tokens. A continuation keeps the space that joins it to what came before."""
        stream = self.stream(continuation)
        return stream.push_all(ids) + stream.finish()

    def stream(self, continuation: bool = True) -> TextStream:
        """An incremental decoder; its joined deltas equal `decode` of all tokens with the same `continuation`."""
        return TextStream(self.piece_bytes, self._strips_space and not continuation)

    def piece_bytes(self, token: int) -> bytes | None:
        """Bytes of one token; None for a control token and for an id the vocabulary does not have."""
        if token not in self._pieces:
            self._pieces[token] = self._look_up(token)
        return self._pieces[token]

    def _look_up(self, token: int) -> bytes | None:
        if token in self._added:
            added = self._added[token]
            return None if added.special else added.content.encode("utf-8")
        text = None if token == self._absent else self._backend.id_to_token(token)
        return None if text is None else self._read(text)


def _state(decoder: Any) -> dict[str, Any] | None:
    """A decoder as tokenizer.json writes it."""
    if decoder is None:
        return None
    state: dict[str, Any] = json.loads(decoder.__getstate__())
    return state


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())

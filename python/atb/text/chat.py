# SPDX-License-Identifier: Apache-2.0
"""Chat templates: the Jinja text that a model brings, rendered in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from atb.errors import DataLossError, FailedPreconditionError, InvalidArgumentError

Message = Mapping[str, Any]  # {"role": "user", "content": "..."}


class ChatTemplate:
    """Turns messages into the prompt text that a model was trained on."""

    def __init__(self, source: str | None, bos_token: str = "", eos_token: str = "") -> None:
        self._source = source
        self.bos_token = bos_token
        self.eos_token = eos_token

    @classmethod
    def from_directory(cls, directory: str | Path) -> ChatTemplate:
        """Reads chat_template.jinja, or chat_template of tokenizer_config.json; a model may have neither."""
        directory = Path(directory)
        config = _read_json(directory / "tokenizer_config.json")
        source = config.get("chat_template")
        if isinstance(source, list):  # several named templates
            named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
            source = named.get("default")
        own_file = directory / "chat_template.jinja"
        if own_file.is_file():
            source = own_file.read_text(encoding="utf-8")
        return cls(source, _token_text(config.get("bos_token")), _token_text(config.get("eos_token")))

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True, **variables: Any) -> str:
        """Prompt text of the messages, each a mapping with `role` and `content`."""
        if not self._source:
            raise FailedPreconditionError("[chat] the model has no chat template; pass a plain prompt")
        if not messages:
            raise InvalidArgumentError("[chat] no messages; expected at least one with 'role' and 'content'")
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
        environment.filters["tojson"] = _to_json
        try:
            return environment.from_string(self._source).render(
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                bos_token=self.bos_token,
                eos_token=self.eos_token,
                **variables,
            )
        except (TemplateError, TypeError) as error:
            raise InvalidArgumentError(f"[chat] the model's template refused the messages: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataLossError(f"[tokenizer] {path} is not valid JSON: {error}") from error
    return value if isinstance(value, dict) else {}


def _token_text(token: Any) -> str:
    """A special token is written as text or as an object with `content`."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def _raise_exception(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)

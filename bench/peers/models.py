# SPDX-License-Identifier: Apache-2.0
"""The model in the forms that peers read, all from one GGUF file; each is made once, under build/peers/models."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers.environments import BUILD, python_of, run_logged
from bench.peers.worker import PeerError

HERE = Path(__file__).parent
MAKE_LIMIT_S = 1800.0


@dataclass(frozen=True)
class Form:
    """How a form is made: a command in an environment, with {source} (form or GGUF) and {output} filled in."""

    environment: str
    source: str  # another form, or "gguf"
    command: tuple[str, ...]
    suffix: str = ""


def _hugging_face(dtype: str) -> Form:
    script = str(HERE / "make_hf_directory.py")
    return Form("transformers", "gguf", (script, "{source}", "{output}", "--dtype", dtype))


def _onnx(precision: str) -> Form:
    command = ("-m", "onnxruntime_genai.models.builder", "-m", "{source}", "-o", "{output}", "-p", precision)
    return Form("onnxruntime", "hf-f32", (*command, "-e", "cpu", "-c", "{output}/cache"))


def _ctranslate2(quantization: str) -> Form:
    command = ("-m", "ctranslate2.converters.transformers", "--model", "{source}", "--output_dir", "{output}")
    return Form("ctranslate2", "hf-f32", (*command, "--quantization", quantization))


FORMS = {
    "hf-f32": _hugging_face("f32"),
    "hf-bf16": _hugging_face("bf16"),
    "gguf-q8_0": Form("transformers", "gguf", (str(HERE / "make_q8_gguf.py"), "{source}", "{output}"), ".gguf"),
    "onnx-f32": _onnx("fp32"),
    "onnx-int4": _onnx("int4"),
    "ct2-f32": _ctranslate2("float32"),
    "ct2-int8": _ctranslate2("int8"),
}


class Models:
    """Makes forms of one GGUF file. A form that failed fails again at once, with the same reason."""

    def __init__(self, gguf: Path, folder: Path = BUILD / "models") -> None:
        self._gguf = gguf
        self._folder = folder / gguf.stem
        self._failed: dict[str, str] = {}

    def path(self, name: str) -> Path:
        """Where a form lies, made if needed. PeerError with the reason when it cannot be made."""
        if name == "gguf-q4_1":
            return self._gguf
        if name in self._failed:
            raise PeerError(self._failed[name])
        form = FORMS[name]
        output = self._folder / f"{name}{form.suffix}"
        stamp = self._folder / f"{name}.stamp"
        if stamp.exists() and output.exists():
            return output
        try:
            source = self._gguf if form.source == "gguf" else self.path(form.source)
            self._make(name, form, source, output)
        except PeerError as error:
            self._failed[name] = f"{name}: {error}"
            raise PeerError(self._failed[name]) from None
        stamp.touch()
        return output

    def _make(self, name: str, form: Form, source: Path, output: Path) -> None:
        python = python_of(form.environment)
        print(f"[peers] making {name}", flush=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        # Made aside, then renamed: a run that is cut, or another one beside it, never leaves half a model.
        aside = self._folder / f"making-{os.getpid()}-{output.name}"
        values = {"source": str(source), "output": str(aside)}
        command: Sequence[str] = [str(python), *(part.format(**values) for part in form.command)]
        try:
            run_logged(command, self._folder / f"{name}.log", MAKE_LIMIT_S, {"HF_HUB_OFFLINE": "1"})
            if not aside.exists():
                raise PeerError("the command succeeded, but made nothing")
            _remove(output)
            aside.rename(output)
        finally:
            _remove(aside)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

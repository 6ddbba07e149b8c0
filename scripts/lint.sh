#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `lint.sh check` runs every check and fails if one of them does; `lint.sh format` writes the formats.
set -uo pipefail
cd "$(dirname "$0")/.."
mode=${1:-check}
mapfile -t cpp < <(git ls-files --cached --others --exclude-standard '*.h' '*.cc')
python_dirs=(python tests scripts bench docs tools/new)

if [ "$mode" = format ]; then
  [ ${#cpp[@]} -eq 0 ] || clang-format -i "${cpp[@]}"
  ruff check --fix "${python_dirs[@]}"
  ruff format "${python_dirs[@]}"
  exit
fi

failed=()
run() {
  local name=$1
  shift
  if "$@"; then echo "[lint] $name: ok"; else failed+=("$name"); fi
}

[ ${#cpp[@]} -eq 0 ] || run clang-format clang-format --dry-run -Werror "${cpp[@]}"
run "ruff check" ruff check -q "${python_dirs[@]}"
run "ruff format" ruff format -q --check "${python_dirs[@]}"
run mypy mypy
for check in layers headers length language; do
  run "$check" python3 "tests/check_$check.py"
done

if [ ${#failed[@]} -gt 0 ]; then
  printf '[lint] failed:' >&2
  printf ' %s;' "${failed[@]}" >&2
  printf ' `make format` writes the formats\n' >&2
  exit 1
fi

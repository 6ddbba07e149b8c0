#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the virtual environment with an `atb` command that runs the package straight from python/ (nothing to
# reinstall after an edit), and brings a CMake from the package index where the system's is older than 3.25.
set -euo pipefail
venv=$1
root=$(cd "$(dirname "$0")/.." && pwd)

find_python() {
  local python
  for python in python3 python3.13 python3.12 python3.11 python3.10; do
    if "$python" -c 'import sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  echo "[setup] no Python >= 3.10 found: install python3 and python3-venv" >&2
  return 1
}

if ! "$venv/bin/python" -c '' 2>/dev/null; then
  python=$(find_python)
  echo "[setup] making $venv with $("$python" --version)"
  "$python" -m venv --clear "$venv"
fi

site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
echo "$root/python" >"$site/atb_dev.pth"

cat >"$venv/bin/atb" <<SCRIPT
#!$(cd "$venv" && pwd)/bin/python
import sys

from atb.cli import main

sys.exit(main())
SCRIPT
chmod +x "$venv/bin/atb"

version=$(cmake --version 2>/dev/null | sed -n '1s/[^0-9]*//p')
oldest=$(printf '%s\n3.25\n' "${version:-0}" | sort -V | head -1)
if [ "$oldest" != 3.25 ]; then
  echo "[setup] CMake ${version:-missing}, 3.25 needed: installing one into $venv"
  "$venv/bin/python" -m pip install -q --disable-pip-version-check 'cmake>=3.25'
fi

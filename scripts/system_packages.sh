#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the system packages that a build needs and that are missing, and the tools named as arguments (`valgrind`)
# from packages of their names; `libfuzzer` means clang with its fuzzer. On Debian and Ubuntu as root; otherwise it
# prints the one line to run, or the names to look for.
set -euo pipefail

compiles() { echo "#include <$1>" | c++ -std=c++20 -E -x c++ - >/dev/null 2>&1; }

fuzzes() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    clang++ -fsanitize=fuzzer,address -x c++ - -o /dev/null 2>/dev/null
}

python_ok() {
  local python
  for python in python3 python3.13 python3.12 python3.11 python3.10; do
    command -v "$python" >/dev/null || continue
    "$python" - <<'PY' 2>/dev/null && return 0
import ensurepip, os, sys, sysconfig, venv
header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
sys.exit(not (sys.version_info >= (3, 10) and os.path.exists(header)))
PY
  done
  return 1
}

missing=()
command -v c++ >/dev/null || missing+=(g++)
for tool in cmake ninja ccache; do
  command -v "$tool" >/dev/null || missing+=("${tool/%ninja/ninja-build}")
done
# Without a compiler nothing can be probed; apt skips what is there already.
compiles hwy/highway.h || missing+=(libhwy-dev)
compiles nlohmann/json.hpp || missing+=(nlohmann-json3-dev)
compiles gtest/gtest.h || missing+=(libgtest-dev)
python_ok || missing+=(python3 python3-venv python3-dev)
for tool in "$@"; do
  if [ "$tool" = libfuzzer ]; then
    fuzzes || missing+=(clang libclang-rt-dev)
  else
    command -v "$tool" >/dev/null || missing+=("$tool")
  fi
done

if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "[setup] missing (Debian names): ${missing[*]}" >&2
  echo "[setup] install these with your system's package manager; on Fedora: gcc-c++ cmake ninja-build ccache" \
    "highway-devel json-devel gtest-devel python3-devel" >&2
  exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "[setup] missing system packages; run this line, then the same make again:" >&2
  echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
echo "[setup] installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null

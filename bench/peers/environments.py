# SPDX-License-Identifier: Apache-2.0
"""One pinned virtual environment a peer, made once: build/peers/<environment>."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.worker import PeerError, last_line

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "peers"
REQUIREMENTS = Path(__file__).parent / "requirements"
INSTALL_LIMIT_S = 3600.0

# Flags of /proc/cpuinfo that llama.cpp can be compiled for, and its option for each.
LLAMA_CPP_OPTIONS = {
    "avx": "GGML_AVX",
    "avx2": "GGML_AVX2",
    "fma": "GGML_FMA",
    "f16c": "GGML_F16C",
    "bmi2": "GGML_BMI2",
    "avx_vnni": "GGML_AVX_VNNI",
    "avx512bw": "GGML_AVX512",
    "avx512_vbmi": "GGML_AVX512_VBMI",
    "avx512_vnni": "GGML_AVX512_VNNI",
    "avx512_bf16": "GGML_AVX512_BF16",
}


def python_of(environment: str) -> Path:
    """The interpreter of an environment; makes the environment first if needed. PeerError when that fails.

    PEER_PYTHON_<environment> (dashes as underscores) names an existing interpreter to use in its place.
    """
    given = os.environ.get(f"PEER_PYTHON_{environment.replace('-', '_')}")
    if given:
        return Path(given)
    requirements = REQUIREMENTS / f"{environment}.txt"
    folder = BUILD / environment
    python = folder / "venv" / "bin" / "python"
    stamp = folder / "stamp"
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted and python.exists():
        return python
    print(f"[peers] making the environment of {environment}; this takes minutes", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = folder / "install.log"
    run_logged([sys.executable, "-m", "venv", str(folder / "venv")], log, INSTALL_LIMIT_S)
    install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", str(requirements)]
    options: dict[str, str] = {}
    if environment == "llama-cpp":
        install.append("--no-cache-dir")  # pip would take what it once compiled with other options
        options["CMAKE_ARGS"] = llama_cpp_options(_cpuinfo_flags())
    run_logged(install, log, INSTALL_LIMIT_S, options)
    stamp.write_text(wanted)
    return python


def run_logged(command: Sequence[str], log: Path, limit_s: float, variables: Mapping[str, str] | None = None) -> None:
    """Runs a command with its output in a log. PeerError with the last line of it when the command fails."""
    name = Path(command[0]).name if "-m" not in command else command[command.index("-m") + 1]
    with log.open("ab") as output:
        try:
            status = subprocess.run(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=limit_s,
                env={**os.environ, **(variables or {})},
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise PeerError(f"{name}: not done within {limit_s:g} s; see {_shown(log)}") from None
        except OSError as error:
            raise PeerError(f"{name}: {error}") from None
    if status != 0:
        raise PeerError(f"{name}: exit status {status}: {last_line(log)} (see {_shown(log)})")


def llama_cpp_options(flags: set[str], machine: str = platform.machine()) -> str:
    """CMake options for llama.cpp: what the CPU can do except AMX, which some machines announce but do not allow."""
    if machine != "x86_64":
        return "-DGGML_NATIVE=ON"
    options = [f"-D{option}={'ON' if flag in flags else 'OFF'}" for flag, option in LLAMA_CPP_OPTIONS.items()]
    return " ".join(["-DGGML_NATIVE=OFF", *options])


def _cpuinfo_flags() -> set[str]:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return set(line.split(":", 1)[1].split())
    except OSError:
        pass
    return set()


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name

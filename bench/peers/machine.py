# SPDX-License-Identifier: Apache-2.0
"""What a table of figures is worth nothing without: machine, versions, date."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from bench.peers.environments import ROOT


def machine_facts(threads: int, rounds: int, versions: list[str]) -> dict[str, Any]:
    """Facts in the order in which the report shows them."""
    cores = len(os.sched_getaffinity(0))
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "CPU": f"{_cpu_name()}, {cores} cores available, {threads} threads for each program",
        "system": f"{_system()}, Python {platform.python_version()}",
        "load average before": f"{os.getloadavg()[0]:.2f}",
        "rounds": f"{rounds}, best of each; ATB and the peer alternate",
        "versions": "; ".join(versions),
        "commit": _commit(),
    }


def _cpu_name() -> str:
    """The CPU as /proc/cpuinfo names it, with its family and model: names alone are often generic."""
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    name = fields.get("model name", platform.machine())
    numbers = ", ".join(f"{key} {fields[key]}" for key in ("cpu family", "model") if key in fields)
    return f"{name} ({numbers})" if numbers else name


def _system() -> str:
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split("=", 1)[1].strip('"') for line in lines if line.startswith("PRETTY_NAME=")]
    return f"{names[0] if names else platform.system()}, Linux {platform.release().split('-')[0]}"


def _commit() -> str:
    try:
        command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"

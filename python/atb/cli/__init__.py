# SPDX-License-Identifier: Apache-2.0
"""The command line: `atb generate | explain | bench | inspect | perplexity | doctor`. One file a command."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point. A broken installation is reported like any other error."""
    try:
        from atb.cli.app import app
    except ImportError as error:
        if "--debug" in sys.argv:
            raise
        print(f"error: [install] {error}; reinstall with `{sys.executable} -m pip install .`", file=sys.stderr)
        raise SystemExit(1) from None
    app()

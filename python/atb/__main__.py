# SPDX-License-Identifier: Apache-2.0
"""`python -m atb` is `atb`."""

from atb.cli import main

main()

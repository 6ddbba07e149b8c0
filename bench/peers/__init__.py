# SPDX-License-Identifier: Apache-2.0
"""ATB beside other programs that run the same model: alternating, in one run, each with its share of the machine."""

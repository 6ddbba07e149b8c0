# SPDX-License-Identifier: Apache-2.0
"""PyTorch modules compiled by ATB beside the same modules in eager PyTorch."""

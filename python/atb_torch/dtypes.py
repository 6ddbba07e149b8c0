# SPDX-License-Identifier: Apache-2.0
"""Names of dtypes: torch's and ATB's."""

from __future__ import annotations

import torch

NAMES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "bool",
}
TORCH = {name: dtype for dtype, name in NAMES.items()}
FLOATS = frozenset(name for name, dtype in TORCH.items() if dtype.is_floating_point)
INTEGERS = frozenset(("i8", "u8", "i32", "i64"))


def dtype_name(dtype: torch.dtype) -> str:
    """ATB's name of a torch dtype; `Refused` for one that ATB has not."""
    from atb_torch.errors import Refused

    if dtype not in NAMES:
        raise Refused(f"dtype {dtype} is not supported; supported are {', '.join(NAMES.values())}")
    return NAMES[dtype]

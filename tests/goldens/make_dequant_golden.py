# SPDX-License-Identifier: Apache-2.0
"""Makes dequant.json: random and extreme blocks with the values that the `gguf` package decodes them to (and encodes).

Run with an interpreter that has numpy and gguf: python tests/goldens/make_dequant_golden.py
"""

import json
import pathlib

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants

# Block bytes and the offsets of its binary16 scales.
FORMATS = {"q8_0": (Type.Q8_0, 34, (0,)), "q4_0": (Type.Q4_0, 18, (0,)), "q4_1": (Type.Q4_1, 20, (0, 2))}
# Normal, tiny (subnormal), zero, negative zero and largest scales.
SCALES = [0.0123, -1.7, 6e-8, 5.5e-5, 0.0, -0.0, 65504.0, 1.0, 3.14159, -0.333]


def make(kind, size, offsets, rng):
    blocks = rng.integers(0, 256, (len(SCALES), size), dtype=np.uint8)
    for i, scale in enumerate(SCALES):
        for j, offset in enumerate(offsets):
            value = np.float16(scale if j == 0 else SCALES[-1 - i])
            blocks[i, offset : offset + 2] = np.frombuffer(value.tobytes(), np.uint8)
    values = quants.dequantize(blocks, kind)
    wide = np.concatenate(
        [rng.standard_normal((6, 32)) * np.float32(10.0) ** rng.integers(-4, 4, (6, 1)), np.zeros((1, 32))]
    ).astype(np.float32)
    return {
        "blocks": blocks.tobytes().hex(),
        "values": values.astype("<f4").tobytes().hex(),
        "encode_input": wide.astype("<f4").tobytes().hex(),
        "encode_output": quants.quantize(wide, kind).tobytes().hex(),
    }


def main():
    rng = np.random.default_rng(20)
    golden = {name: make(*parts, rng) for name, parts in FORMATS.items()}
    path = pathlib.Path(__file__).with_name("dequant.json")
    path.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""The same GGUF file with every matrix in Q8_0, vectors in f32. Runs in the environment of transformers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gguf
import numpy as np

OWN_KEYS = ("general.architecture", "general.file_type", "general.quantization_version")


def copy_field(writer: gguf.GGUFWriter, field: Any) -> None:
    if field.name.startswith("GGUF.") or field.name in OWN_KEYS:
        return
    kind = field.types[0]
    element = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
    writer.add_key_value(field.name, field.contents(), kind, sub_type=element)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    reader = gguf.GGUFReader(args.source)
    architecture = reader.get_field("general.architecture").contents()
    writer = gguf.GGUFWriter(args.output, architecture)
    for field in reader.fields.values():
        copy_field(writer, field)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        kind = gguf.GGMLQuantizationType.Q8_0 if values.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()

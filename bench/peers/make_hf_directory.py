# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face directory, weights in f32 or bf16, from a GGUF file. Runs in the environment of transformers."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import transformers

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    args = parser.parse_args()
    folder, name = str(args.gguf.parent), args.gguf.name
    read = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    config = read.config
    for key in ("quantization_config", "_pre_quantization_dtype"):  # the copy below is not quantized
        if hasattr(config, key):
            delattr(config, key)
    model = type(read)(config).to(DTYPES[args.dtype])
    model.load_state_dict(read.state_dict())
    model.tie_weights()
    model.save_pretrained(args.directory)
    transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(args.directory)


if __name__ == "__main__":
    main()

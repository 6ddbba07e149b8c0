# SPDX-License-Identifier: Apache-2.0
"""Writes tokenizer.json.xz: what llama.cpp makes of the mixed strings. Needs llama-cpp-python, gguf and tokenizers.

    python tests/goldens/make_tokenizer_golden.py MODEL.gguf

For the model's own pre-tokenizer all 10,000 strings are kept (four bytes a string, and the ids of the first 100 in
full). For each other named pre-tokenizer 2,000 strings are kept: the same vocabulary is written to a file with that
name. A small SentencePiece vocabulary, trained on the same strings, covers tokenizers of the kind "llama". Strings are
tokenized without BOS (add_special = false), and the text of a control token becomes that token (parse_special = true).
"""

from __future__ import annotations

import base64
import json
import lzma
import sys
import tempfile
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
from tokenizer_strings import CONTROL, hash_ids, hash_strings, mixed_strings
from tokenizers import Tokenizer, models, normalizers, trainers

GOLDEN = Path(__file__).with_name("tokenizer.json.xz")
ALL, SOME, IN_FULL = 10_000, 2_000, 100
OTHER_NAMES = ("gpt-2", "llama-bpe", "dbrx", "qwen2", "stablelm2", "default", "falcon", "starcoder")


def peer_ids(path: Path, strings: list[str]) -> list[list[int]]:
    """Token ids by llama.cpp."""
    peer = llama_cpp.Llama(model_path=str(path), vocab_only=True, verbose=False)
    return [peer.tokenize(text.encode("utf-8"), add_bos=False, special=True) for text in strings]


def packed(ids: list[list[int]]) -> str:
    return base64.b64encode(b"".join(map(hash_ids, ids))).decode()


def write_vocabulary(path: Path, fields: dict[str, Any]) -> None:
    """A GGUF file without tensors: what a tokenizer needs and the sizes that a loader insists on."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(64)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(fields["tokenizer.ggml.model"])
    writer.add_token_list(fields["tokenizer.ggml.tokens"])
    writer.add_token_types(fields["tokenizer.ggml.token_type"])
    if "tokenizer.ggml.pre" in fields:
        writer.add_tokenizer_pre(fields["tokenizer.ggml.pre"])
    if "tokenizer.ggml.merges" in fields:
        writer.add_token_merges(fields["tokenizer.ggml.merges"])
    if "tokenizer.ggml.scores" in fields:
        writer.add_token_scores(fields["tokenizer.ggml.scores"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def sentencepiece_fields(strings: list[str]) -> dict[str, Any]:
    """A SentencePiece vocabulary of 1,500 pieces: control tokens, bytes, then pieces with falling scores."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    plain = [text for text in strings if not any(mark in text for mark in CONTROL)]
    trained.train_from_iterator(plain, trainers.BpeTrainer(vocab_size=1_240, limit_alphabet=300, max_token_length=10))
    learned = [text for text, _ in sorted(trained.get_vocab().items(), key=lambda item: item[1])]
    head = ["<unk>", "<s>", "</s>"]
    tokens = head + [f"<0x{byte:02X}>" for byte in range(256)] + [text for text in learned if text not in head]
    first = len(head) + 256
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - first),
        "tokenizer.ggml.scores": [0.0] * first + [-float(i) for i in range(len(tokens) - first)],
    }


def main() -> None:
    model = Path(sys.argv[1])
    strings = mixed_strings(ALL)
    fields = {name: field.contents() for name, field in gguf.GGUFReader(model).fields.items() if "tokenizer" in name}
    own = peer_ids(model, strings)
    golden: dict[str, Any] = {
        "made_with": f"llama-cpp-python {llama_cpp.__version__}",
        "strings": hash_strings(strings),
        "own_name": fields["tokenizer.ggml.pre"],
        "own": packed(own),
        "in_full": own[:IN_FULL],
        "named": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vocabulary.gguf"
        for name in OTHER_NAMES:
            write_vocabulary(file, fields | {"tokenizer.ggml.pre": name})
            golden["named"][name] = packed(peer_ids(file, strings[:SOME]))
        pieces = sentencepiece_fields(strings)
        write_vocabulary(file, pieces)
        golden["sentencepiece"] = {"fields": pieces, "ids": packed(peer_ids(file, strings))}
    GOLDEN.write_bytes(lzma.compress(json.dumps(golden, ensure_ascii=False).encode("utf-8")))
    print(f"{GOLDEN}: {GOLDEN.stat().st_size} bytes")


if __name__ == "__main__":
    main()

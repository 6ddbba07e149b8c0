// SPDX-License-Identifier: Apache-2.0
// Tokenizer metadata of a GGUF file as the C++ side reads it: typed access to each key, every element of each array.
// (Tokenizers themselves are built in Python; tests/python/test_tokenizer_mutations.py turns those over.)
#include "frontends/file_writers.h"
#include "frontends/gguf.h"
#include "fuzz/target.h"

namespace atb::fuzz {
namespace {

using testing::as_bytes;
using testing::GgufWriter;

void read_all(const GgufArray& array) {
  expect(array.strings.size() + array.arrays.size() <= array.count, "more elements than the count");
  for (const GgufArray& inner : array.arrays) read_all(inner);
  if (array.type == GgufType::kString || array.type == GgufType::kArray) return;
  for (uint64_t i = 0; i < array.count; ++i) {
    (void)array.number(i);
    (void)array.integer(i);
  }
}

std::string f32_array(const std::vector<float>& values) {
  return as_bytes(uint32_t{6}) + as_bytes(uint64_t{values.size()}) + testing::f32_bytes(values);
}

GgufWriter common(const char* model) {
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", model)
      .u32("tokenizer.ggml.bos_token_id", 0)
      .boolean("tokenizer.ggml.add_bos_token", true);
  return writer;
}

}  // namespace

std::vector<std::string> seeds() {
  GgufWriter bpe = common("gpt2"), sentencepiece = common("llama");
  bpe.text("tokenizer.ggml.pre", "smollm").strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<|end|>"});
  bpe.strings("tokenizer.ggml.merges", {"a b"}).text("tokenizer.chat_template", "{{ messages[0]['content'] }}");
  bpe.raw("tokenizer.ggml.token_type", 9,
          as_bytes(uint32_t{5}) + as_bytes(uint64_t{4}) + as_bytes(1) + as_bytes(1) + as_bytes(1) + as_bytes(3));
  sentencepiece.strings("tokenizer.ggml.tokens", {"<unk>", "\xe2\x96\x81", "<0x41>"});
  sentencepiece.raw("tokenizer.ggml.scores", 9, f32_array({0.0f, -1.0f, -2.5f}));
  sentencepiece.raw("nested", 9, as_bytes(uint32_t{9}) + as_bytes(uint64_t{1}) + f32_array({1.5f}));
  return {bpe.bytes(), sentencepiece.bytes()};
}

void run(std::string_view input) {
  Gguf file;
  if (!accepts([&] { file = read_gguf(MappedFile::of_bytes("x.gguf", bytes_of(input))); })) return;
  for (const auto& item : file.metadata.items()) {
    const std::string_view key = item.first;
    accepts([&] { (void)file.metadata.integer(key); });
    accepts([&] { (void)file.metadata.real(key); });
    accepts([&] { (void)file.metadata.boolean(key); });
    accepts([&] { (void)file.metadata.text(key); });
    if (accepts([&] { (void)file.metadata.array(key); })) read_all(*file.metadata.array(key));
  }
}

}  // namespace atb::fuzz

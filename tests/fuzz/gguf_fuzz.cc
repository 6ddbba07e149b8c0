// SPDX-License-Identifier: Apache-2.0
// A whole GGUF file: metadata, tensor table and data, and the model that it describes.
#include "frontends/gguf.h"

#include <algorithm>

#include "fuzz/target.h"
#include "ir/verifier.h"
#include "models/load/open.h"
#include "models/load/weights.h"
#include "models/tiny_models.h"

namespace atb::fuzz {
namespace {

using testing::GgufId;
using testing::GgufWriter;

testing::TinyLlama tiny() {
  testing::TinyLlama model;
  model.vocab = 4, model.hidden = 32, model.layers = 1, model.heads = 2, model.kv_heads = 1, model.head_dim = 4;
  model.ff = 32;
  return model.fill();
}

// Every front end decodes rows; the first of each tensor stand for all.
void decode(const Gguf& file) {
  for (const auto& [name, tensor] : file.tensors) {
    std::vector<float> row(static_cast<size_t>(tensor->row_elems()));
    for (const int64_t i : {int64_t{0}, tensor->num_rows() - 1}) tensor->decode_row(i, row.data());
  }
}

void build(const Gguf& file) {
  const ModelFamily& family = family_of(file);
  ModelConfig config = config_of_gguf(family, file);
  Weights weights(WeightFormat::kGguf, file.tensors, family.weight_names);
  config.layers = std::min<int64_t>(config.layers, 2);  // more is more of the same
  verify(*family.build(config, weights), "building");
}

}  // namespace

std::vector<std::string> seeds() {
  GgufWriter plain = tiny().gguf_header(), quantized = tiny().gguf_header(), mixed;
  tiny().add_gguf_tensors(plain);
  tiny().add_gguf_tensors(quantized, GgufId::kQ8_0, "q8_0");
  const std::string blocks(256, '\x11');
  mixed.u32("general.alignment", 32).text("general.architecture", "other");
  mixed.tensor("a", {1, 32}, GgufId::kQ4_0, blocks.substr(0, 18)).tensor("b", {2}, GgufId::kF16, blocks.substr(0, 4));
  mixed.tensor("c", {1, 32}, GgufId::kQ4_1, blocks.substr(0, 20))
      .tensor("d", {256}, GgufId::kQ6_K, blocks.substr(0, 210));
  mixed.tensor("e", {2, 2}, GgufId::kBF16, blocks.substr(0, 8));
  return {mixed.bytes(), plain.bytes(), quantized.bytes(), GgufWriter(2).bytes()};
}

void run(std::string_view input) {
  Gguf file;
  if (!accepts([&] { file = read_gguf(MappedFile::of_bytes("x.gguf", bytes_of(input))); })) return;
  decode(file);
  accepts([&] { build(file); });
}

}  // namespace atb::fuzz

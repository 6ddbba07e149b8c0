// SPDX-License-Identifier: Apache-2.0
// B34: bare Infinity or NaN in config.json breaks a strict parser. In a field that is not used it must not matter, in
// one that is used the error must name it; and so for other numbers that no size or factor can be.
#include <gtest/gtest.h>

#include "models/model.h"
#include "models/tiny_models.h"

namespace atb {
namespace {

using testing::TempDir;
using testing::TinyLlama;

TinyLlama tiny(const std::string& key, const std::string& value) {
  TinyLlama model;
  model.layers = 1;
  model.extra_config[key] = value;
  return model.fill();
}

TEST(B34, UnusedFieldsLoad) {
  const TempDir dir;
  for (const char* value : {"[0.0, Infinity]", "NaN", "-Infinity", "{\"a\": [NaN, -Infinity]}", "1e999", "-1e999"}) {
    EXPECT_EQ(load_model(tiny("time_step_limit", value).write_directory(dir)).config.layers, 1) << value;
  }
  dir.write("generation_config.json", R"({"length_penalty": Infinity, "eos_token_id": 2})");
  EXPECT_EQ(load_model(dir.path()).config.eos_ids, std::vector<int64_t>{2});
}

TEST(B34, TextThatLooksLikeThemStaysText) {
  const TempDir dir;
  EXPECT_EQ(load_model(tiny("note", R"("NaN, Infinity and 1e999, \"NaN\"")").write_directory(dir)).config.layers, 1);
}

TEST(B34, UsedFieldsAreNamed) {
  const TempDir dir;
  const auto refused = [&](const std::string& key, const std::string& value, const std::string& shown) {
    EXPECT_ATB_ERROR(load_model(tiny(key, value).write_directory(dir)), Code::kInvalidArgument, "config.json", key,
                     shown);
  };
  refused("rms_norm_eps", "NaN", "NaN");
  refused("rope_theta", "Infinity", "Infinity");
  refused("rope_theta", "-Infinity", "-Infinity");
  refused("rope_theta", "1e999", "1e999");
  refused("hidden_size", "-1", "-1");
  refused("hidden_size", "NaN", "NaN");
  refused("num_attention_heads", "0", "is 0");
  refused("num_attention_heads", "-4", "-4");
  refused("num_hidden_layers", "Infinity", "Infinity");
  refused("eos_token_id", "[2, NaN]", "NaN");
  refused("rope_scaling", R"({"rope_type": "llama3", "factor": NaN})", "factor");
}

TEST(B34, GgufFilesToo) {
  const TempDir dir;
  const auto refused = [&](const std::string& key, float value) {
    testing::GgufWriter writer;
    TinyLlama model = tiny("unused", "0");
    writer.text("general.architecture", "llama").u32("llama.block_count", 1).u32("llama.context_length", 64);
    writer.u32("llama.embedding_length", 32).u32("llama.feed_forward_length", 64);
    writer.u32("llama.attention.head_count", 4).u32("llama.attention.head_count_kv", 2);
    const bool is_eps = key.ends_with("epsilon");
    writer.f32("llama.attention.layer_norm_rms_epsilon", is_eps ? value : 1e-5f);
    writer.f32("llama.rope.freq_base", is_eps ? 10000.0f : value);
    model.add_gguf_tensors(writer);
    EXPECT_ATB_ERROR(load_model(dir.write("m.gguf", writer.bytes())), Code::kInvalidArgument, key, "finite");
  };
  for (const float value : {NAN, INFINITY, -INFINITY, 0.0f, -1.0f}) {
    refused("llama.attention.layer_norm_rms_epsilon", value);
    refused("llama.rope.freq_base", value);
  }
}

}  // namespace
}  // namespace atb

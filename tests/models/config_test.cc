// SPDX-License-Identifier: Apache-2.0
// Configurations: what is read, what is refused and how the error names it.
#include <gtest/gtest.h>

#include "frontends/file_writers.h"
#include "models/load/config_json.h"
#include "models/model.h"
#include "models/tiny_models.h"

namespace atb {
namespace {

using testing::TempDir;
using testing::TinyLlama;

ModelConfig config_with(const std::map<std::string, std::string>& extra) {
  TinyLlama model;
  model.extra_config = extra;
  const TempDir dir;
  return read_model_config(dir.write("config.json", model.config_json()));
}

TEST(Config, ReadsTheFieldsOfLlama) {
  const ModelConfig config = config_with({{"eos_token_id", "[5, 6]"}, {"bos_token_id", "4"}});
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.vocab_size, 32);
  EXPECT_EQ(config.hidden_size, 32);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.intermediate_size, 64);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.context_length, 64);
  EXPECT_EQ(config.activation, "silu");
  EXPECT_TRUE(config.tied_head);
  EXPECT_EQ(config.rope.rotary_dim, 8);
  EXPECT_EQ(config.bos_ids, std::vector<int64_t>{4});
  EXPECT_EQ(config.eos_ids, (std::vector<int64_t>{5, 6}));
}

TEST(Config, DefaultsAreThoseOfTheArchitecture) {
  const TempDir dir;
  const ModelConfig config = read_model_config(
      dir.write("config.json", R"({"model_type": "llama", "vocab_size": 10, "hidden_size": 12, "num_hidden_layers": 1,
                         "num_attention_heads": 3, "intermediate_size": 8, "num_key_value_heads": null})"));
  EXPECT_EQ(config.kv_heads, 3);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_EQ(config.context_length, 2048);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_FALSE(config.tied_head);
  EXPECT_EQ(config.bos_ids, std::vector<int64_t>{1});
  EXPECT_EQ(config.eos_ids, std::vector<int64_t>{2});
}

TEST(Config, GenerationConfigGivesTheStopTokens) {
  const TempDir dir;
  TinyLlama model;
  model.extra_config = {{"eos_token_id", "1"}};
  dir.write("config.json", model.config_json());
  dir.write("generation_config.json", R"({"eos_token_id": [1, 26], "temperature": 0.6})");
  EXPECT_EQ(read_model_config(dir.path()).eos_ids, (std::vector<int64_t>{1, 26}));
  dir.write("generation_config.json", R"({"eos_token_id": null})");
  EXPECT_EQ(read_model_config(dir.path()).eos_ids, std::vector<int64_t>{1});
  dir.write("generation_config.json", R"({"eos_token_id": "x"})");
  EXPECT_ATB_ERROR(read_model_config(dir.path()), Code::kInvalidArgument, "generation_config.json", "eos_token_id");
}

TEST(Config, UnusedFieldsMayHoldAnything) {
  EXPECT_EQ(
      config_with({{"time_step_limit", "[0.0, Infinity]"}, {"odd", "NaN"}, {"text", "\"NaN \\\" Infinity\""}}).layers,
      2);
}

TEST(Config, UsedFieldsAreChecked) {
  const auto refused = [](const std::string& key, const std::string& value, const std::string& text) {
    EXPECT_ATB_ERROR(config_with({{key, value}}), Code::kInvalidArgument, "[config]", "config.json", key, text);
  };
  refused("hidden_size", "-1", "-1");
  refused("hidden_size", "0", "must be an integer from 1");
  refused("hidden_size", "32.5", "32.5");
  refused("hidden_size", "\"32\"", "must be an integer");
  refused("hidden_size", "18446744073709551615", "18446744073709551615");
  refused("hidden_size", "null", "is missing");
  refused("num_attention_heads", "0", "must be an integer from 1");
  refused("num_attention_heads", "3", "multiple of num_key_value_heads 2");
  refused("num_hidden_layers", "1000000000", "from 1 to 512");
  refused("head_dim", "7", "even");
  refused("head_dim", "1000000000", "from 1 to 8192");
  refused("rms_norm_eps", "NaN", "finite");
  refused("rms_norm_eps", "0", "finite number above 0");
  refused("rope_theta", "Infinity", "finite");
  refused("rope_theta", "-Infinity", "finite");
  refused("tie_word_embeddings", "1", "true or false");
  refused("eos_token_id", "[1, \"a\"]", "token id");
  refused("rope_scaling", "3", "must be an object");
}

TEST(Config, WhatThisBuildHasNotIsNamed) {
  const auto unsupported = [](std::map<std::string, std::string> extra, const std::string& text) {
    EXPECT_ATB_ERROR(config_with(extra), Code::kUnsupported, "config.json", text);
  };
  unsupported({{"architectures", "[\"NoSuchForCausalLM\"]"}}, "NoSuchForCausalLM is not supported; supported: Llama");
  unsupported({{"hidden_act", "\"mish\""}}, "mish");
  unsupported({{"quantization_config", "{\"bits\": 4}"}}, "quantization_config");
  unsupported({{"partial_rotary_factor", "0.5"}}, "partial_rotary_factor");
  unsupported(
      {{"architectures", "[\"MistralForCausalLM\"]"}, {"model_type", "\"mistral\""}, {"sliding_window", "4096"}},
      "sliding_window");
  unsupported({{"architectures", "[\"MistralForCausalLM\"]"}, {"model_type", "\"mistral\""}}, "sliding_window");
  EXPECT_EQ(
      config_with(
          {{"architectures", "[\"MistralForCausalLM\"]"}, {"model_type", "\"mistral\""}, {"sliding_window", "null"}})
          .family,
      "llama");
}

TEST(Config, BrokenFilesAreNamed) {
  const TempDir dir;
  EXPECT_ATB_ERROR(read_model_config(dir.path()), Code::kNotFound, "config.json");
  EXPECT_ATB_ERROR(read_model_config(dir.write("config.json", "{\"a\": ")), Code::kDataLoss, "config.json", "JSON");
  EXPECT_ATB_ERROR(read_model_config(dir.write("config.json", "[]")), Code::kDataLoss, "object");
  EXPECT_ATB_ERROR(read_model_config(dir.write("config.json", "")), Code::kDataLoss, "JSON");
  EXPECT_ATB_ERROR(read_model_config(dir.write("config.json", "{\"a\": 1e999.5}")), Code::kDataLoss, "JSON");
}

}  // namespace
}  // namespace atb

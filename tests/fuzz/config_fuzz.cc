// SPDX-License-Identifier: Apache-2.0
// config.json: to a family's configuration and, with few layers, to its graph without weights.
#include <algorithm>

#include "fuzz/target.h"
#include "ir/verifier.h"
#include "models/load/open.h"
#include "models/tiny_models.h"

namespace atb::fuzz {
namespace {

std::string config_with(const std::map<std::string, std::string>& extra) {
  testing::TinyLlama model;
  model.extra_config = extra;
  return model.config_json();
}

void build(std::string_view text) {
  const HfConfig hf = hf_config(ConfigJson::parse(text));
  const ModelFamily& family = family_of(hf, "x");
  (void)contradiction(family, hf);
  ModelConfig config = config_of_directory(family, hf, "no such directory");
  config.layers = std::min<int64_t>(config.layers, 2);  // more is more of the same
  verify(*build_graph(config), "building");
}

}  // namespace

std::vector<std::string> seeds() {
  return {
      config_with({}),
      config_with({{"rope_scaling", R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                        "high_freq_factor": 4.0, "original_max_position_embeddings": 32})"}}),
      config_with({{"eos_token_id", "[1, 2]"}, {"attention_bias", "true"}, {"mlp_bias", "true"}, {"odd", "Infinity"}}),
      R"({"architectures": ["LlamaForCausalLM"], "text_config": )" + config_with({{"hidden_act", "\"relu\""}}) + "}",
      config_with({{"model_type", "\"mistral\""}, {"sliding_window", "null"}, {"head_dim", "null"}}),
  };
}

void run(std::string_view input) {
  accepts([&] { build(input); });
}

}  // namespace atb::fuzz

// SPDX-License-Identifier: Apache-2.0
// Rope configurations.
#include "models/load/rope.h"

#include <cmath>
#include <string>

#include "core/error.h"

namespace atb {
namespace {

// The object that holds rope fields: rope_parameters, else rope_scaling. transformers gives rope_scaling priority when
// a file has both; files that do hold the same in each.
std::optional<ConfigJson> rope_object(const ConfigJson& config) {
  auto object = config.child("rope_scaling");
  return object ? object : config.child("rope_parameters");
}

std::string rope_type(const ConfigJson& rope) {
  if (rope.has("rope_type")) return rope.text_or("rope_type", "");
  if (rope.has("type")) return rope.text_or("type", "");
  // Only a plain theta may go without a type: scaling parameters of an unnamed kind must not pass for none.
  if (rope.has("factor") || !rope.has("rope_theta")) rope.fail("rope_type", "is missing");
  return "default";
}

void read_llama3(const ConfigJson& rope, int64_t context, RopeConfig& result) {
  result.factor = rope.positive("factor");
  result.low_freq_factor = rope.positive("low_freq_factor");
  result.high_freq_factor = rope.positive("high_freq_factor");
  result.original_context = rope.size_or("original_max_position_embeddings", context);
  if (result.high_freq_factor <= result.low_freq_factor) {
    rope.fail("high_freq_factor", "is " + std::to_string(result.high_freq_factor) + ", must be above low_freq_factor " +
                                      std::to_string(result.low_freq_factor));
  }
}

}  // namespace

RopeConfig rope_from_hf(const ConfigJson& config, int64_t head_dim, int64_t context) {
  RopeConfig result;
  result.rotary_dim = head_dim;
  result.theta = config.positive_or("rope_theta", result.theta);
  // Not part of this architecture in transformers, which ignores it in one place and uses it in another.
  if (config.has("partial_rotary_factor") && config.positive("partial_rotary_factor") != 1.0) {
    config.unsupported("partial_rotary_factor", "other than 1 is not supported for this architecture");
  }
  const auto rope = rope_object(config);
  if (!rope) return result;
  result.theta = rope->positive_or("rope_theta", result.theta);
  if (rope->has("partial_rotary_factor") && rope->positive("partial_rotary_factor") != 1.0) {
    rope->unsupported("partial_rotary_factor", "other than 1 is not supported for this architecture");
  }
  result.type = rope_type(*rope);
  if (result.type == "llama3") {
    read_llama3(*rope, context, result);
  } else if (result.type != "default") {
    rope->unsupported("rope_type", "\"" + result.type + "\" is not supported; supported: default, llama3");
  }
  return result;
}

RopeConfig rope_from_gguf(const GgufConfig& config, int64_t head_dim) {
  RopeConfig result;
  result.theta = config.positive_or("rope.freq_base", result.theta);
  result.rotary_dim = config.size_or("rope.dimension_count", head_dim, head_dim);
  const auto type = config.file().metadata.text(config.key("rope.scaling.type"));
  if (type && *type != "none" && !(*type == "linear" && config.positive_or("rope.scaling.factor", 1.0) == 1.0)) {
    config.unsupported("rope.scaling.type", "\"" + std::string(*type) + "\" is not supported; supported: none");
  }
  if (config.positive_or("rope.scale_linear", 1.0) != 1.0) {
    config.unsupported("rope.scale_linear", "other than 1 is not supported");
  }
  const auto divisors = config.file().tensors.find("rope_freqs.weight");
  if (divisors == config.file().tensors.end()) return result;
  const int64_t expected = result.rotary_dim / 2;
  require(divisors->second->shape() == std::vector<int64_t>{expected}, Code::kDataLoss, "[gguf] ",
          config.file().file->path().string(), ": tensor rope_freqs.weight has ", divisors->second->row_elems(),
          " values, expected ", expected, " (half of ", config.key("rope.dimension_count"), ")");
  result.frequency_divisors = divisors->second->to_f32();
  for (const float divisor : result.frequency_divisors) {
    require(std::isfinite(divisor) && divisor > 0.0f, Code::kDataLoss, "[gguf] ", config.file().file->path().string(),
            ": tensor rope_freqs.weight holds ", divisor, ", must be finite and above 0");
  }
  return result;
}

}  // namespace atb

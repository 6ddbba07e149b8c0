// SPDX-License-Identifier: Apache-2.0
// A model file brought all the way to an engine: load, optimize, plan. What the Python package and applications use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "passes/engine/report.h"
#include "runtime/generate/engine.h"

namespace atb {

struct LanguageModelOptions {
  std::string device = "cpu";
  std::string dtype = "auto";      // "auto": weights as stored; no other yet
  std::string precision = "auto";  // "auto": fast for quantized weights, exact otherwise; "exact"; "fast"
  int threads = 0;                 // 0: all available CPUs
  int64_t prefill_chunk = 0;       // 0: chosen by the engine
  int64_t context_length = 0;      // 0: the model's; otherwise at most that
  int64_t kv_tokens = 0;           // 0: chosen by the engine
};

struct LanguageModelInfo {
  std::string family;
  std::string precision;  // "exact" or "fast"
  std::string target;     // SIMD target of the kernels
  int64_t layers = 0;
  int64_t vocab = 0;
  int64_t context_length = 0;
  int64_t bos_token_id = -1;  // -1: none
  std::vector<int32_t> stop_token_ids;
  size_t weight_bytes = 0;            // as stored in the file
  size_t weight_bytes_per_token = 0;  // read by one decoding step
  double flops_per_token = 0;         // matrix products of a prompt token: no attention, no head
  double load_s = 0;
};

// The engine and what belongs to it. Thread safe as the engine is.
class LanguageModel {
 public:
  // `path`: a Hugging Face directory, a .gguf file, or a hub name in the local cache. Errors as of load_model,
  // optimize, find_device and Engine.
  static std::unique_ptr<LanguageModel> open(const std::string& path, const LanguageModelOptions& options);

  Engine& engine() { return *engine_; }
  const LanguageModelInfo& info() const { return info_; }
  // What was fused and what was not: the JSON of `atb explain` for the loaded graph at `tokens` tokens.
  std::string report_json(int64_t tokens) const;

 private:
  LanguageModel() = default;

  LanguageModelInfo info_;
  MatchReport report_;
  std::unique_ptr<Engine> engine_;
};

// The JSON of `atb explain` for a model path or a config.json alone (weights are not read). dtype: "auto" (as stored)
// or the name of a float type, in which activations are counted too.
std::string explain_model(const std::string& path_or_config, int64_t tokens, const std::string& dtype);

}  // namespace atb

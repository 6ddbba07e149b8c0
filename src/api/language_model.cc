// SPDX-License-Identifier: Apache-2.0
// A model file brought all the way to an engine: load, optimize, plan.
#include "atb/language_model.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "api/run_options.h"
#include "core/error.h"
#include "ir/op.h"
#include "kernels/target.h"
#include "models/model.h"
#include "models/resolve.h"
#include "passes/engine/report.h"
#include "passes/explain.h"
#include "passes/pipeline.h"
#include "runtime/generate/engine.h"

namespace atb {

struct LanguageModel::Impl {
  LanguageModelInfo info;
  MatchReport report;
  std::unique_ptr<Engine> engine;
};

namespace {

int64_t choose_context(int64_t wanted, const ModelConfig& config) {
  require(wanted >= 0 && wanted <= config.context_length, Code::kInvalidArgument, "[model] context ", wanted,
          "; allowed are 1 to the model's ", config.context_length);
  return wanted == 0 ? config.context_length : wanted;
}

bool is_matrix_product(const Node& node) {
  return node.is("linear") || node.is("merged_matmul") || node.is("fused_linear") || node.is("fused_gate_up");
}

// Bytes of the constants that every step reads in full; embeddings are read by row.
size_t weight_bytes_per_step(const Graph& graph) {
  size_t bytes = 0;
  for (const Node* node : graph.nodes()) {
    if (node->is("embedding")) continue;
    for (const Value* input : node->inputs()) {
      if (input != nullptr && input->is_constant()) bytes += input->constant()->num_bytes();
    }
  }
  return bytes;
}

double flops_per_token(const Graph& graph) {
  const Bindings one_token{{"T", 1}, {"L", 0}};
  double flops = 0;
  for (const Node* node : graph.nodes()) {
    if (is_matrix_product(*node)) flops += static_cast<double>(node_flops(*node).eval(one_token));
  }
  return flops;
}

// The device, once all options that need no model are found right.
const Device& check_options(const LanguageModelOptions& options) {
  const Device& device = running_device(options.device, "a model", "; `atb explain` needs no device");
  require(options.dtype == "auto", Code::kUnsupported, "[model] dtype '", options.dtype,
          "'; this build runs weights as they are stored: use auto");
  return device;
}

DType named_float(const std::string& name) {
  const auto dtype = dtype_from_name(name);
  require(dtype.has_value() && is_float(*dtype), Code::kInvalidArgument, "[explain] dtype '", name,
          "'; allowed are auto, f32, f16, bf16");
  return *dtype;
}

}  // namespace

LanguageModel::LanguageModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LanguageModel::~LanguageModel() = default;

std::unique_ptr<LanguageModel> LanguageModel::open(const std::string& path, const LanguageModelOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  check_options(options);
  std::unique_ptr<LanguageModel> model = from_loaded(load_model(resolve_model_path(path)), options);
  model->impl_->info.load_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return model;
}

std::unique_ptr<LanguageModel> LanguageModel::from_loaded(LoadedModel model, const LanguageModelOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const Device& device = check_options(options);
  const Precision precision = precision_named(options.precision, model.default_precision, "model");

  auto impl = std::make_unique<Impl>();
  LanguageModelInfo& info = impl->info;
  info.family = model.config.family;
  info.precision = precision == Precision::kFast ? "fast" : "exact";
  info.target = cpu_target_name();
  info.layers = model.config.layers;
  info.vocab = model.config.vocab_size;
  info.context_length = choose_context(options.context_length, model.config);
  if (!model.config.bos_ids.empty()) info.bos_token_id = model.config.bos_ids[0];
  info.stop_token_ids.assign(model.config.eos_ids.begin(), model.config.eos_ids.end());
  info.weight_bytes = model.weight_bytes;

  const OptLevel level = opt_level(options.opt_level, "model");
  impl->report = optimize(*model.graph, {.level = level});
  info.weight_bytes_per_token = weight_bytes_per_step(*model.graph);
  info.flops_per_token = flops_per_token(*model.graph);
  EngineOptions engine;
  engine.session.threads = options.threads;
  engine.session.precision = precision;
  engine.session.level = level;
  engine.context_length = info.context_length;
  engine.prefill_chunk = options.prefill_chunk;
  engine.kv_tokens = options.kv_tokens;
  impl->engine = std::make_unique<Engine>(std::move(model.graph), device, engine);
  info.load_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return std::unique_ptr<LanguageModel>(new LanguageModel(std::move(impl)));
}

const LanguageModelInfo& LanguageModel::info() const { return impl_->info; }
Engine& LanguageModel::engine() { return *impl_->engine; }

LanguageModel::RequestId LanguageModel::submit(std::vector<int32_t> prompt, const SamplingParams& params,
                                               uint64_t stream) {
  return impl_->engine->submit(std::move(prompt), params, stream);
}

Progress LanguageModel::next(RequestId id, const Poll& between_steps) { return impl_->engine->next(id, between_steps); }
void LanguageModel::cancel(RequestId id) { impl_->engine->cancel(id); }
void LanguageModel::release(RequestId id) { impl_->engine->release(id); }
RequestTiming LanguageModel::timing(RequestId id) const { return impl_->engine->timing(id); }

void LanguageModel::logits(const std::vector<std::vector<int32_t>>& sequences, const ConsumeLogits& consume,
                           const Poll& between_steps) {
  impl_->engine->logits(sequences, consume, between_steps);
}

std::string LanguageModel::report_json(int64_t tokens) const { return explain_json(impl_->report, tokens); }

std::string explain_model(const std::string& path_or_config, int64_t tokens, const std::string& dtype) {
  const std::string path = resolve_model_path(path_or_config);
  if (dtype != "auto") return explain_json(*build_from_config(path, {.dtype = named_float(dtype)}), tokens);
  const bool config_alone = path.ends_with(".json");
  return explain_json(config_alone ? *build_from_config(path) : *load_model(path).graph, tokens);
}

}  // namespace atb

// SPDX-License-Identifier: Apache-2.0
// A model file brought all the way to tokens: load, optimize, plan, generate. Text belongs to the Python package: here
// a prompt is token ids, and so is what comes back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atb/export.h"
#include "atb/generation.h"

namespace atb {

class Engine;
struct LoadedModel;

struct LanguageModelOptions {
  std::string device = "cpu";
  std::string dtype = "auto";      // "auto": weights as stored; no other yet
  std::string precision = "auto";  // "auto": fast for quantized weights, exact otherwise; "exact"; "fast"
  int threads = 0;                 // 0: all available CPUs
  int64_t prefill_chunk = 0;       // prompt tokens a step; 0: chosen by the engine
  int64_t context_length = 0;      // 0: the model's; otherwise at most that
  int64_t kv_tokens = 0;           // tokens that the cache holds for all requests together; 0: chosen by the engine
  int64_t opt_level = 3;           // 0, 1: canonical, for a cache needs that much; 2: fused; 3: planned
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

// Several threads may call one model at once. It has no thread that works by itself: whoever waits in next() drives the
// steps that serve all requests. In a forked child every call throws kFailedPrecondition.
class ATB_API LanguageModel {
 public:
  using RequestId = int64_t;
  // Called between steps; may throw to stop waiting. The request stays as it is.
  using Poll = std::function<void()>;
  // Receives rows [first_row, first_row + rows) of a sequence's logits, f32 [rows, vocab], valid during the call. It
  // may not call the model: the step that it belongs to is still running.
  using ConsumeLogits = std::function<void(int64_t sequence, int64_t first_row, int64_t rows, const float* logits)>;

  // `path`: a Hugging Face directory, a .gguf file, or a hub name in the local cache. kNotFound, kDataLoss and
  // kUnsupported name the file and what is wrong with it; kInvalidArgument names the option; kResourceExhausted says
  // how much memory is needed and how much there is.
  static std::unique_ptr<LanguageModel> open(const std::string& path, const LanguageModelOptions& options = {});
  // A model that is in memory already; for the library's own front ends, its header is not installed.
  static std::unique_ptr<LanguageModel> from_loaded(LoadedModel model, const LanguageModelOptions& options = {});
  ~LanguageModel();
  LanguageModel(const LanguageModel&) = delete;
  LanguageModel& operator=(const LanguageModel&) = delete;

  const LanguageModelInfo& info() const;

  // Queues a prompt. kInvalidArgument: an empty prompt, an id outside the vocabulary, a prompt longer than the context,
  // a bad parameter. kResourceExhausted: a sequence that could never fit in the cache. `stream` tells requests that
  // share a seed apart.
  RequestId submit(std::vector<int32_t> prompt, const SamplingParams& params = {}, uint64_t stream = 0);
  // Waits for at least one new token or the end. After the end: no tokens, the same reason.
  Progress next(RequestId id, const Poll& between_steps = {});
  // Ends a request early: its next() reports kCancelled.
  void cancel(RequestId id);
  // Forgets a request, cancelling it if need be. Unknown ids are ignored.
  void release(RequestId id);
  RequestTiming timing(RequestId id) const;

  // Runs sequences through the model together and hands over the logits of every token, a chunk of rows at a time.
  void logits(const std::vector<std::vector<int32_t>>& sequences, const ConsumeLogits& consume,
              const Poll& between_steps = {});

  // What was fused and what was not: the JSON of `atb explain` for the loaded graph at `tokens` tokens, and under
  // "sketch" the nodes of the layer in the middle before and after.
  std::string report_json(int64_t tokens) const;

  // The engine itself, for the library's own front ends; its header is not installed.
  Engine& engine();

 private:
  struct Impl;
  explicit LanguageModel(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

// The JSON of `atb explain` for a model path or a config.json alone (weights are not read). dtype: "auto" (as stored)
// or the name of a float type, in which activations are counted too. As LanguageModel::report_json.
ATB_API std::string explain_model(const std::string& path_or_config, int64_t tokens, const std::string& dtype);

}  // namespace atb

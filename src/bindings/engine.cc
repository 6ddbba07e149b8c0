// SPDX-License-Identifier: Apache-2.0
#include "bindings/engine.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <utility>

#include "api/compiled_graph.h"
#include "atb/language_model.h"
#include "bindings/thread_count.h"
#include "core/error.h"
#include "ir/text.h"
#include "models/model.h"
#include "runtime/generate/engine.h"
#include "runtime/source_release.h"

namespace atb {
namespace {

namespace nb = nanobind;
using Ids = std::vector<int64_t>;

// Lets Ctrl-C end a long wait.
void check_signals() {
  const nb::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// Token ids arrive as any Python integer; the engine takes 32 bits and checks the vocabulary.
std::vector<int32_t> narrow(const Ids& ids, int64_t vocab) {
  std::vector<int32_t> narrowed;
  narrowed.reserve(ids.size());
  for (int64_t id : ids) {
    require(id >= 0 && id < vocab, Code::kInvalidArgument, "[engine] token id ", id, ", allowed are 0 to ", vocab - 1);
    narrowed.push_back(static_cast<int32_t>(id));
  }
  return narrowed;
}

std::unique_ptr<LanguageModel> open(const std::string& path, const std::string& device, const std::string& dtype,
                                    const std::string& precision, int64_t threads, int64_t prefill_chunk,
                                    int64_t context, int64_t kv_tokens, int64_t opt_level) {
  const nb::gil_scoped_release release;
  return LanguageModel::open(
      path, {device, dtype, precision, thread_count(threads), prefill_chunk, context, kv_tokens, opt_level});
}

// A cache-free decoder graph (ids [B, T] -> logits [B, T, V]) as a model; the graph is copied, its constants are
// shared. release: they are taken from the graph, so that they go while they are packed; even if this fails later.
std::unique_ptr<LanguageModel> from_graph(Graph& graph, int64_t context_length, const Ids& bos_ids, const Ids& eos_ids,
                                          const std::string& device, const std::string& precision, int64_t threads,
                                          int64_t prefill_chunk, int64_t kv_tokens, bool release, int64_t opt_level) {
  const nb::gil_scoped_release unlocked;
  LoadedModel model = model_of_graph(graph.clone(), context_length);
  if (release) {
    for (Value* constant : graph.constants()) release_constant(graph, constant);
  }
  model.config.bos_ids = bos_ids;
  model.config.eos_ids = eos_ids;
  return LanguageModel::from_loaded(std::move(model), {device, "auto", precision, thread_count(threads), prefill_chunk,
                                                       context_length, kv_tokens, opt_level});
}

int64_t submit(LanguageModel& model, const Ids& prompt, int64_t max_new_tokens, double temperature, int64_t top_k,
               double top_p, uint64_t seed, const std::optional<Ids>& stop_token_ids, bool ignore_eos,
               uint64_t stream) {
  Engine& engine = model.engine();
  SamplingParams params;
  params.max_new_tokens = max_new_tokens;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.seed = seed;
  if (stop_token_ids) {
    params.stop_token_ids = narrow(*stop_token_ids, engine.vocab());
  } else if (!ignore_eos) {
    params.stop_token_ids = model.info().stop_token_ids;
  }
  std::vector<int32_t> ids = narrow(prompt, engine.vocab());
  const nb::gil_scoped_release release;
  return engine.submit(std::move(ids), params, stream);
}

nb::tuple next(LanguageModel& model, int64_t request) {
  Progress progress;
  {
    const nb::gil_scoped_release release;
    progress = model.engine().next(request, check_signals);
  }
  nb::object reason = nb::none();
  if (progress.finished != FinishReason::kNone) {
    const std::string_view name = finish_reason_name(progress.finished);
    reason = nb::str(name.data(), name.size());
  }
  return nb::make_tuple(progress.tokens, reason);
}

nb::dict timing(LanguageModel& model, int64_t request) {
  const RequestTiming timing = model.engine().timing(request);
  nb::dict result;
  result["prefill_s"] = timing.prefill_s;
  result["decode_s"] = timing.decode_s;
  result["prompt_tokens"] = timing.prompt_tokens;
  result["generated_tokens"] = timing.generated_tokens;
  return result;
}

// One f32 [tokens, vocab] a sequence.
std::vector<Tensor> logits(LanguageModel& model, const std::vector<Ids>& sequences) {
  Engine& engine = model.engine();
  const int64_t vocab = engine.vocab();
  std::vector<std::vector<int32_t>> ids;
  for (const Ids& sequence : sequences) ids.push_back(narrow(sequence, vocab));
  const nb::gil_scoped_release release;
  std::vector<Tensor> result;
  for (const auto& sequence : ids) {
    result.push_back(Tensor::allocate(DType::kF32, {static_cast<int64_t>(sequence.size()), vocab}));
  }
  engine.logits(
      ids,
      [&](int64_t sequence, int64_t first_row, int64_t count, const float* values) {
        float* rows = result[static_cast<size_t>(sequence)].view().as<float>();
        std::copy(values, values + count * vocab, rows + first_row * vocab);
      },
      check_signals);
  return result;
}

// log softmax(logits)[token], in f64.
double log_probability(const float* logits, int64_t vocab, int32_t token) {
  double largest = logits[0];
  for (int64_t i = 1; i < vocab; ++i) largest = std::max(largest, static_cast<double>(logits[i]));
  double sum = 0;
  for (int64_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(logits[i]) - largest);
  return static_cast<double>(logits[token]) - largest - std::log(sum);
}

double log_likelihood(LanguageModel& model, const Ids& ids, int64_t begin) {
  Engine& engine = model.engine();
  const std::vector<int32_t> tokens = narrow(ids, engine.vocab());
  const int64_t count = static_cast<int64_t>(tokens.size());
  require(begin >= 1 && begin <= count, Code::kInvalidArgument, "[engine] begin is ", begin, ", allowed are 1 to ",
          count);
  const nb::gil_scoped_release release;
  double sum = 0;
  engine.logits(
      {tokens},
      [&](int64_t, int64_t first_row, int64_t rows, const float* values) {
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t predicted = first_row + r + 1;
          if (predicted < begin || predicted >= count) continue;
          sum += log_probability(values + r * engine.vocab(), engine.vocab(), tokens[static_cast<size_t>(predicted)]);
        }
      },
      check_signals);
  return sum;
}

nb::dict stats(LanguageModel& model) {
  const EngineStats stats = model.engine().stats();
  nb::dict result;
  result["kv_blocks_in_use"] = stats.kv_blocks_in_use;
  result["kv_blocks_total"] = stats.kv_blocks_total;
  result["kv_block_tokens"] = stats.kv_block_tokens;
  result["kv_bytes_in_use"] = static_cast<size_t>(stats.kv_blocks_in_use) * stats.kv_block_bytes;
  result["requests"] = stats.requests;
  result["plans"] = stats.session.plans;
  result["weight_bytes"] = stats.session.packed_bytes;
  result["arena_bytes"] = stats.session.arena_bytes;
  result["arena_lower_bound_bytes"] = stats.session.arena_lower_bound_bytes;
  result["scratch_bytes"] = stats.session.scratch_bytes;
  return result;
}

nb::dict info(LanguageModel& model) {
  const LanguageModelInfo& info = model.info();
  nb::dict result;
  result["family"] = info.family;
  result["precision"] = info.precision;
  result["target"] = info.target;
  result["threads"] = model.engine().threads();
  result["layers"] = info.layers;
  result["vocab"] = info.vocab;
  result["context_length"] = info.context_length;
  result["bos"] = info.bos_token_id;
  result["eos"] = info.stop_token_ids;
  result["weight_bytes"] = info.weight_bytes;
  result["weight_bytes_per_token"] = info.weight_bytes_per_token;
  result["kv_bytes_per_token"] = model.engine().kv_layout().token_bytes();
  result["flops_per_token"] = info.flops_per_token;
  result["load_s"] = info.load_s;
  return result;
}

}  // namespace

void bind_engine(nb::module_& module) {
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<LanguageModel>(module, "Engine")
      .def(nb::new_(&open), nb::arg("path"), nb::arg("device") = "cpu", nb::arg("dtype") = "auto",
           nb::arg("precision") = "auto", nb::arg("threads") = 0, nb::arg("prefill_chunk") = 0, nb::arg("context") = 0,
           nb::arg("kv_tokens") = 0, nb::arg("opt_level") = 3)
      .def_static("from_graph", &from_graph, nb::arg("graph"), nb::arg("context_length"), nb::arg("bos_ids"),
                  nb::arg("eos_ids"), nb::arg("device") = "cpu", nb::arg("precision") = "auto", nb::arg("threads") = 0,
                  nb::arg("prefill_chunk") = 0, nb::arg("kv_tokens") = 0, nb::arg("release") = false,
                  nb::arg("opt_level") = 3)
      .def("submit", &submit, nb::arg("prompt_ids"), nb::arg("max_new_tokens"), nb::arg("temperature") = 0.0,
           nb::arg("top_k") = 0, nb::arg("top_p") = 1.0, nb::arg("seed") = 0, nb::arg("stop_token_ids") = nb::none(),
           nb::arg("ignore_eos") = false, nb::arg("stream") = 0)
      .def("next", &next, nb::arg("request"), nb::sig("def next(self, request: int) -> tuple[list[int], str | None]"))
      .def(
          "cancel", [](LanguageModel& model, int64_t request) { model.engine().cancel(request); }, nb::arg("request"),
          Release())
      .def(
          "release", [](LanguageModel& model, int64_t request) { model.engine().release(request); }, nb::arg("request"),
          Release())
      .def("timing", &timing, nb::arg("request"), nb::sig("def timing(self, request: int) -> dict[str, typing.Any]"))
      .def("logits", &logits, nb::arg("sequences"))
      .def("log_likelihood", &log_likelihood, nb::arg("ids"), nb::arg("begin"))
      .def("stats", &stats, nb::sig("def stats(self) -> dict[str, typing.Any]"))
      .def("info", &info, nb::sig("def info(self) -> dict[str, typing.Any]"))
      .def(
          "__str__", [](LanguageModel& model) { return print(model.engine().graph()); }, Release(),
          "The text form of the graph that runs.")
      .def("report_json", &LanguageModel::report_json, nb::arg("tokens") = 1, Release())
      .def(
          "start_trace", [](LanguageModel& model) { model.engine().start_trace(); }, Release())
      .def(
          "write_trace", [](LanguageModel& model, const std::string& path) { model.engine().write_trace(path); },
          nb::arg("path"), Release());
}

}  // namespace atb

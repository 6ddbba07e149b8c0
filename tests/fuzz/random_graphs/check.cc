// SPDX-License-Identifier: Apache-2.0
#include "fuzz/random_graphs/check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "api/compiled_graph.h"
#include "passes/engine/pattern.h"
#include "passes/pipeline.h"

namespace atb::random_graphs {
namespace {

using Outputs = std::vector<RefTensor<double>>;

// Where nobody has looked how well-conditioned the values are, f64 rounding may be amplified.
constexpr double kUnscreenedTolerance = 1e-7;

// Largest error over the spread, infinite where integers or shapes differ or a number is lost; `which` names the
// output.
double worst_error(const Graph& graph, const Outputs& actual, const Outputs& expected, std::string& which) {
  double worst = 0;
  const auto fault = [&](size_t output, double error) {
    if (error <= worst) return;
    worst = error;
    which = graph.output_names()[output];
  };
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool alike = actual[i].shape == expected[i].shape && actual[i].dtype == expected[i].dtype &&
                       actual[i].f.size() == expected[i].f.size() && actual[i].i == expected[i].i;
    if (!alike) fault(i, INFINITY);
    if (!alike) continue;
    const double scale = std::max(spread(expected[i].f), 1e-300);
    for (size_t j = 0; j < expected[i].f.size(); ++j) {
      const double error = std::abs(actual[i].f[j] - expected[i].f[j]) / scale;
      fault(i, std::isnan(error) ? INFINITY : error);
    }
  }
  return worst;
}

// ---- compiled
// --------------------------------------------------------------------------------------------------------

void store(DType dtype, double number, int64_t integer, std::byte* at) {
  const auto put = [&](auto value) { std::memcpy(at, &value, sizeof(value)); };
  switch (dtype) {
    case DType::kF32:
      return put(static_cast<float>(number));
    case DType::kF16:
      return put(f32_to_f16(static_cast<float>(number)));
    case DType::kBF16:
      return put(f32_to_bf16(static_cast<float>(number)));
    case DType::kI32:
      return put(static_cast<int32_t>(integer));
    case DType::kI64:
      return put(integer);
    default:
      return put(static_cast<uint8_t>(integer));
  }
}

Tensor to_tensor(const RefTensor<double>& from) {
  Tensor tensor = Tensor::allocate(from.dtype, from.shape);
  for (size_t i = 0; i < static_cast<size_t>(from.size()); ++i) {
    const bool real = is_float(from.dtype);
    store(from.dtype, real ? from.f[i] : 0, real ? 0 : from.i[i], tensor.data.get() + i * dtype_size(from.dtype));
  }
  return tensor;
}

template <class T>
T load(const Tensor& tensor, size_t index) {
  T value;
  std::memcpy(&value, tensor.data.get() + index * sizeof(T), sizeof(T));
  return value;
}

RefTensor<double> from_tensor(const Tensor& tensor) {
  RefTensor<double> result;
  result.dtype = tensor.dtype;
  result.shape = tensor.shape;
  for (size_t i = 0; i < static_cast<size_t>(result.size()); ++i) {
    if (tensor.dtype == DType::kF32) result.f.push_back(load<float>(tensor, i));
    if (tensor.dtype == DType::kF16) result.f.push_back(f16_to_f32(load<uint16_t>(tensor, i)));
    if (tensor.dtype == DType::kBF16) result.f.push_back(bf16_to_f32(load<uint16_t>(tensor, i)));
    if (tensor.dtype == DType::kI32) result.i.push_back(load<int32_t>(tensor, i));
    if (tensor.dtype == DType::kI64) result.i.push_back(load<int64_t>(tensor, i));
    if (tensor.dtype == DType::kBool) result.i.push_back(load<uint8_t>(tensor, i));
  }
  return result;
}

Outputs run_compiled(const Graph& graph, const Inputs& inputs, int64_t level) {
  CompiledGraph compiled(graph.clone(),
                         {.threads = 1 + static_cast<int>(graph.nodes().size() % 4 == 0), .opt_level = level});
  std::vector<Tensor> tensors;
  std::vector<TensorView> views;
  for (const Value* input : graph.inputs()) {
    tensors.push_back(to_tensor(inputs.at(input->name())));
    views.push_back(tensors.back().view());
  }
  Outputs outputs;
  for (const Tensor& tensor : compiled.run(views)) outputs.push_back(from_tensor(tensor));
  return outputs;
}

std::string as_text(double error, const std::string& output) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2e", error);
  return output + " is off by " + text + " of its spread";
}

bool same_bits(const Outputs& a, const Outputs& b) {
  const auto same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const auto& x, const auto& y) {
    return std::equal(x.f.begin(), x.f.end(), y.f.begin(), y.f.end(), same) && x.i == y.i;
  });
}

// The compiled graph at every level; planning changes no bit. `loss`: the error of the highest.
std::optional<Failure> check_compiled(const Graph& graph, const Inputs& inputs, const Outputs& expected, double& loss) {
  Outputs higher;
  for (int64_t level = 3; level >= 0; --level) {
    Outputs outputs = run_compiled(graph, inputs, level);
    std::string which;
    const double error = worst_error(graph, outputs, expected, which);
    if (level == 3) loss = error;
    const std::string at = "compiled at level " + std::to_string(level) + ": ";
    if (!(error <= kCompiledTolerance)) return Failure{Failure::Kind::kCompiledNumbers, at + as_text(error, which)};
    if (level == 2 && !same_bits(outputs, higher)) {
      return Failure{Failure::Kind::kCompiledNumbers, at + "other bits than at level 3"};
    }
    higher = std::move(outputs);
  }
  return std::nullopt;
}

// ---- plants
// ----------------------------------------------------------------------------------------------------------

bool fired(const MatchReport& report, const Plant& plant) {
  return std::any_of(report.patterns.begin(), report.patterns.end(), [&](const PatternResult& result) {
    return result.name == plant.pattern && result.layers.contains(plant.layer);
  });
}

std::string reason(const MatchReport& report, const Plant& plant) {
  for (const MatchFailure& miss : report.misses) {
    if (miss.pattern == plant.pattern && miss.layer == plant.layer) return miss.str();
  }
  return "no reason given";
}

std::optional<Failure> check_plant(const Plant& plant, const Graph& optimized, const MatchReport& report) {
  const std::string name = plant.pattern + " at layer " + std::to_string(plant.layer) +
                           (plant.flaw.empty() ? ", whole" : ", with the flaw \"" + plant.flaw + "\"");
  const bool has = fired(report, plant);
  if (has != plant.fires) {
    return Failure{Failure::Kind::kPlant, name + (has ? ": was fused" : ": was not fused: " + reason(report, plant))};
  }
  if (!plant.causal || !plant.fires) return std::nullopt;
  for (const Node* node : optimized.nodes()) {
    if (!node->is("flash_attention") || node->layer() != plant.layer) continue;
    if (node->attrs().flag("causal") != *plant.causal) {
      return Failure{Failure::Kind::kPlant, name + (*plant.causal ? ": is not causal" : ": became causal")};
    }
  }
  return std::nullopt;
}

PipelineOptions plain_options() {
  PipelineOptions options;
  options.cache = false;
  options.verify = true;
  return options;
}

}  // namespace

void Counts::add(const Counts& other) {
  graphs += other.graphs;
  nodes += other.nodes;
  outputs += other.outputs;
  for (const auto& [name, count] : other.fired) fired[name] += count;
  for (const auto& [name, count] : other.flawed) flawed[name] += count;
  worst_optimized = std::max(worst_optimized, other.worst_optimized);
  worst_compiled = std::max(worst_compiled, other.worst_compiled);
}

double tolerance_of(const RandomGraph& random) { return random.rounds ? kRoundedTolerance : kOptimizedTolerance; }

std::optional<Failure> check_numbers(const Graph& graph, const Inputs& inputs, double tolerance, Counts* counts) {
  Counts ignored;
  Counts& seen = counts == nullptr ? ignored : *counts;
  const Outputs expected = interpret<double>(graph, inputs);
  try {
    const std::unique_ptr<Graph> optimized = graph.clone();
    optimize(*optimized, plain_options());
    std::string which;
    const double error = worst_error(graph, interpret<double>(*optimized, inputs), expected, which);
    if (!(error <= tolerance)) return Failure{Failure::Kind::kNumbers, "optimized: " + as_text(error, which)};
    double loss = 0;
    if (auto failure = check_compiled(graph, inputs, expected, loss)) return failure;
    if (tolerance == kOptimizedTolerance) seen.worst_optimized = std::max(seen.worst_optimized, error);
    seen.worst_compiled = std::max(seen.worst_compiled, loss);
  } catch (const Error& error) {
    return Failure{Failure::Kind::kThrows, error.what()};
  }
  return std::nullopt;
}

std::optional<Failure> check(const RandomGraph& random, Counts* counts) {
  Counts seen;
  seen.graphs = 1;
  seen.nodes = static_cast<int64_t>(random.graph->nodes().size());
  seen.outputs = static_cast<int64_t>(random.graph->outputs().size());
  if (auto failure = check_numbers(*random.graph, random.inputs, tolerance_of(random), &seen)) return failure;

  // At other extents values may lie near ties or lose accuracy in f32, so that only f64 tells.
  const std::unique_ptr<Graph> optimized = random.graph->clone();
  const MatchReport report = optimize(*optimized, plain_options());
  std::string which;
  const double error = worst_error(*random.graph, interpret<double>(*optimized, random.other_inputs),
                                   interpret<double>(*random.graph, random.other_inputs), which);
  if (!(error <= std::max(tolerance_of(random), kUnscreenedTolerance))) {
    return Failure{Failure::Kind::kNumbers, "optimized, other extents: " + as_text(error, which)};
  }
  for (const Plant& plant : random.plants) {
    if (auto failure = check_plant(plant, *optimized, report)) return failure;
    if (plant.flaw.empty()) {
      ++seen.fired[plant.pattern];
    } else {
      ++seen.flawed[plant.pattern + ": " + plant.flaw];
    }
  }
  if (counts != nullptr) counts->add(seen);
  return std::nullopt;
}

std::string first_wrong_pass(const Graph& graph, const Inputs& inputs, double tolerance) {
  const Outputs expected = interpret<double>(graph, inputs);
  const auto wrong_after = [&](PipelineOptions options) {
    std::string first;
    std::string last;
    options.after_pass = [&](const Graph& now, const char* pass) {
      last = pass;
      std::string which;
      if (first.empty() && worst_error(graph, interpret<double>(now, inputs), expected, which) > tolerance) {
        first = pass;
      }
    };
    try {
      optimize(*graph.clone(), options);
    } catch (const Error& error) {
      if (first.empty()) first = "what follows " + (last.empty() ? "the front door" : last) + ": " + error.what();
    }
    return first;
  };
  const std::string pass = wrong_after(plain_options());
  if (pass.empty()) return "no pass: the numbers of the plan or of a kernel";
  for (const Pattern* pattern : PatternRegistry::instance().all()) {
    PipelineOptions without = plain_options();
    without.disabled_patterns = {pattern->name()};
    if (wrong_after(without).empty()) return pass + " (not without the pattern " + pattern->name() + ")";
  }
  return pass;
}

}  // namespace atb::random_graphs

// SPDX-License-Identifier: Apache-2.0
// What the case files share: models whose layers are measured, and large weights.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "ops/case_registry.h"

namespace atb::testing {

// Sizes of a model's layer.
struct BenchModel {
  std::string_view name;
  int64_t hidden, heads, kv_heads, head_dim, intermediate;
};
constexpr std::array<BenchModel, 2> kBenchModels = {
    {{"smollm2_135m", 576, 9, 3, 64, 1536}, {"llama2_7b", 4096, 32, 32, 128, 11008}}};
// Tokens of a step: decode and prefill.
struct BenchStep {
  std::string_view name;
  int64_t tokens;
};
constexpr std::array<BenchStep, 2> kBenchSteps = {{{"decode", 1}, {"prefill512", 512}}};

// One call a model and step, named "model/step/suffix"; make(model, tokens) gives it.
template <class Make>
std::vector<BenchCall> bench_calls(const std::string& suffix, bool reads_weights, const Make& make) {
  std::vector<BenchCall> calls;
  for (const BenchModel& model : kBenchModels) {
    for (const BenchStep& step : kBenchSteps) {
      const std::string name = std::string(model.name) + "/" + std::string(step.name) + (suffix.empty() ? "" : "/");
      calls.push_back(
          {name + suffix, [make, model, step] { return make(model, step.tokens); }, reads_weights && step.tokens == 1});
    }
  }
  return calls;
}

// A weight [rows, k] whose rows repeat a few stored ones: made in no time, yet packed in full.
inline Operand repeated_weight(const std::string& format, int64_t rows, int64_t k) {
  const int64_t stored = std::min<int64_t>(rows, 16);
  std::vector<int32_t> map(static_cast<size_t>(rows));
  for (size_t i = 0; i < map.size(); ++i) map[i] = static_cast<int32_t>(i % static_cast<size_t>(stored));
  const Operand source = weight_as(format, {stored, k}, random_values(stored * k, 5));
  return constant(Constant::permute_rows(source.constant, std::move(map)));
}

inline Operand random_activation(std::vector<int64_t> shape, uint32_t seed, float scale = 1.0f) {
  const int64_t count = count_of(shape);
  return activation(std::move(shape), random_values(count, seed, scale));
}

// For kernels without vectors of their own: nothing, one, a few, and more than what they unroll by.
inline std::vector<int64_t> few_sizes(int64_t first = 0) {
  std::vector<int64_t> sizes;
  for (const int64_t n : {0, 1, 2, 5, 16, 17, 35, 70}) {
    if (n >= first) sizes.push_back(n);
  }
  return sizes;
}

inline std::vector<int64_t> counting(int64_t n, int64_t first = 0) {
  std::vector<int64_t> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<int64_t>(i);
  return values;
}

// Away from zero: a divisor.
inline Operand positive(std::vector<int64_t> shape, uint32_t seed) {
  Operand operand = random_activation(std::move(shape), seed);
  for (float& value : operand.tensor->f) value = std::abs(value) + 0.5f;
  return operand;
}

inline Operand some_integers(std::vector<int64_t> shape, int64_t step, DType dtype = DType::kI32) {
  std::vector<int64_t> values = counting(count_of(shape));
  for (int64_t& value : values) value = value * step % 97 - 40;
  return integers(std::move(shape), std::move(values), dtype);
}

inline Operand flags(std::vector<int64_t> shape) {
  std::vector<int64_t> values = counting(count_of(shape));
  for (int64_t& value : values) value = value * 7 % 3 == 0 ? 1 : 0;
  return integers(std::move(shape), std::move(values), DType::kBool);
}

}  // namespace atb::testing

// SPDX-License-Identifier: Apache-2.0
// Cases of linear, merged_matmul and fused_gate_up: every weight format and precision, sizes swept over features, rows
// and terms.
#include <cmath>

#include "ops/cases/case_util.h"

namespace atb {
namespace {

using namespace testing;

constexpr std::array<const char*, 6> kFormats = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"};

bool is_encoded(const std::string& format) { return format[0] == 'q'; }

// What quantized activations stand for: precision fast is exact arithmetic on these.
OpCase with_quantized_activations(OpCase test) {
  std::vector<float>& x = test.inputs[0].tensor->f;
  for (size_t block = 0; block + 32 <= x.size(); block += 32) {
    float top = 0;
    for (size_t i = 0; i < 32; ++i) top = std::max(top, std::abs(x[block + i]));
    const float inverse = top < 1e-30f ? 0.0f : 127.0f / top;
    for (size_t i = 0; i < 32; ++i) x[block + i] = std::nearbyint(x[block + i] * inverse) * (top / 127.0f);
  }
  return test;
}

// Shape of one product.
struct Product {
  int64_t rows, features, terms;
};

Operand weight_of(const std::string& format, int64_t features, int64_t terms) {
  return weight_as(format, {features, terms}, random_values(features * terms, 5));
}

Operand x_of(const Product& p) { return random_activation({p.rows, p.terms}, 7, 3.0f); }

OpCase linear(const std::string& format, Precision precision, const Product& p, bool bias) {
  return {.op = "linear",
          .inputs = {x_of(p), weight_of(format, p.features, p.terms),
                     bias ? weight({p.features}, random_values(p.features, 11)) : no_operand()},
          .precision = precision};
}

OpCase gate_up(const std::string& format, Precision precision, const Product& p, const std::string& activation_name) {
  return {.op = "fused_gate_up",
          .inputs = {x_of(p), weight_of(format, 2 * p.features, p.terms),
                     weight({2 * p.features}, random_values(2 * p.features, 11))},
          .attrs = {{"activation", activation_name}},
          .precision = precision};
}

OpCase merged(const std::string& format, Precision precision, const Product& p, const std::vector<int64_t>& splits) {
  return {
      .op = "merged_matmul",
      .inputs = {x_of(p), weight_of(format, p.features, p.terms), weight({p.features}, random_values(p.features, 11))},
      .attrs = {{"splits", splits}},
      .precision = precision};
}

std::vector<BenchCall> linear_calls(const std::string& format, Precision precision) {
  return bench_calls("", true, [format, precision](const BenchModel& model, int64_t tokens) {
    return OpCase{.op = "linear",
                  .inputs = {random_activation({tokens, model.intermediate}, 7),
                             repeated_weight(format, model.hidden, model.intermediate)},
                  .precision = precision};
  });
}

std::vector<BenchCall> merged_calls(const std::string& format, Precision precision) {
  return bench_calls("", true, [format, precision](const BenchModel& model, int64_t tokens) {
    const std::vector<int64_t> splits = {model.heads * model.head_dim, model.kv_heads * model.head_dim,
                                         model.kv_heads * model.head_dim};
    return OpCase{.op = "merged_matmul",
                  .inputs = {random_activation({tokens, model.hidden}, 7),
                             repeated_weight(format, splits[0] + splits[1] + splits[2], model.hidden)},
                  .attrs = {{"splits", splits}},
                  .precision = precision};
  });
}

std::vector<BenchCall> gate_up_calls(const std::string& format, Precision precision) {
  return bench_calls("", true, [format, precision](const BenchModel& model, int64_t tokens) {
    return OpCase{.op = "fused_gate_up",
                  .inputs = {random_activation({tokens, model.hidden}, 7),
                             repeated_weight(format, 2 * model.intermediate, model.hidden)},
                  .attrs = {{"activation", std::string("silu")}},
                  .precision = precision};
  });
}

// Adds a case of `op` in one format and precision.
struct Adder {
  CaseRegistry& registry;
  std::string format;
  Precision precision;

  template <class Make>
  void operator()(const std::string& op, const std::string& swept, std::vector<int64_t> sizes, Make make,
                  std::vector<BenchCall> bench = {}) const {
    const bool fast = precision == Precision::kFast;
    registry.add(
        {.name = op + "/" + format + (fast ? "/fast/" : "/exact/") + swept,
         .op = op,
         .make = make,
         .sizes = std::move(sizes),
         .tolerance = 3e-6,
         .why = fast ? "exact byte sums, then one rounded chain over blocks; the oracle has the same quantized x"
                     : "one rounded chain over the terms",
         .rows = {0},
         .oracle = fast ? with_quantized_activations : std::function<OpCase(OpCase)>(),
         .bench = std::move(bench)});
  }
};

void register_format(const Adder& add) {
  const std::string format = add.format;
  const Precision precision = add.precision;
  // Row counts: one, few, beyond the tile, beyond a block of rows.
  add(
      "linear", "rows", {0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 64, 129, 300},
      [=](int64_t n) {
        return linear(format, precision, {n, 41, 96}, n % 2 == 0);
      },
      linear_calls(format, precision));
  add("linear", "features", around_vectors(1), [=](int64_t n) {
    return linear(format, precision, {n % 3 == 0 ? 20 : n % 3, n, 64}, n % 2 == 0);
  });
  // More terms than one pass takes.
  add("linear", "long_rows", {1696}, [=](int64_t n) { return linear(format, precision, {20, 40, n}, false); });
  add(
      "merged_matmul", "features", {1, 7, 15, 16, 17, 33},
      [=](int64_t n) {
        return merged(format, precision, {n % 2 == 0 ? 1 : n, 20 + n + 37, 64}, {20, n, 37});
      },
      merged_calls(format, precision));
  add(
      "fused_gate_up", "features", {1, 5, 8, 15, 16, 17, 33, 70},
      [=](int64_t n) {
        return gate_up(format, precision, {n % 2 == 0 ? 1 : n, n, 64}, "silu");
      },
      gate_up_calls(format, precision));
}

}  // namespace

void register_case_linear(CaseRegistry& registry) {
  for (const std::string format : kFormats) {
    const Adder exact{registry, format, Precision::kExact};
    register_format(exact);
    if (is_encoded(format)) {
      register_format({registry, format, Precision::kFast});
      continue;
    }
    exact("linear", "terms", around_vectors(0), [format](int64_t n) {
      return linear(format, Precision::kExact, {n % 3 == 0 ? 20 : n % 3 * 2, 19, n}, true);
    });
  }
  const Adder f32{registry, "f32", Precision::kExact};
  for (const std::string name : {"gelu_none", "gelu_tanh", "relu"}) {
    f32("fused_gate_up", name, {0, 1, 3, 5, 20, 150}, [name](int64_t n) {
      return gate_up("f32", Precision::kExact, {n, 21, 33}, name);
    });
  }
}

}  // namespace atb

// SPDX-License-Identifier: Apache-2.0
// Cases of fused_linear, and of fused_gate_up with a norm: every weight format and precision, each part alone and with
// others, sizes swept over rows, features and terms.
#include "ops/cases/case_util.h"

namespace atb {
namespace {

using namespace testing;

constexpr std::array<const char*, 6> kFormats = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"};
constexpr std::array<const char*, 3> kNorms = {"none", "rms", "layer"};

// One product and what is folded in.
struct Folded {
  int64_t rows = 1;
  std::vector<int64_t> splits = {41};
  int64_t terms = 96;
  std::string norm = "none";
  std::string activation = "none";
  bool bias = false;
  bool residual = false;

  int64_t features() const {
    int64_t sum = 0;
    for (const int64_t split : splits) sum += split;
    return sum;
  }
};

void add_norm(OpCase& test, const std::string& norm, int64_t terms) {
  test.attrs.set("norm", norm);
  test.attrs.set("eps", 1e-5);
  test.inputs.push_back(norm == "none" ? no_operand() : weight({terms}, random_values(terms, 13)));
  test.inputs.push_back(norm == "layer" ? weight({terms}, random_values(terms, 17)) : no_operand());
}

OpCase fused_linear(const std::string& format, Precision precision, const Folded& f) {
  OpCase test{.op = "fused_linear",
              .inputs = {random_activation({f.rows, f.terms}, 7, 3.0f),
                         weight_as(format, {f.features(), f.terms}, random_values(f.features() * f.terms, 5)),
                         f.bias ? weight({f.features()}, random_values(f.features(), 11)) : no_operand()},
              .attrs = {{"splits", f.splits}, {"activation", f.activation}},
              .precision = precision};
  add_norm(test, f.norm, f.terms);
  test.inputs.push_back(f.residual ? random_activation({f.rows, f.features()}, 19) : no_operand());
  return test;
}

OpCase normed_gate_up(const std::string& format, Precision precision, int64_t rows, const std::string& norm) {
  constexpr int64_t kTerms = 64;
  constexpr int64_t kFeatures = 21;
  OpCase test{.op = "fused_gate_up",
              .inputs = {random_activation({rows, kTerms}, 7, 3.0f),
                         weight_as(format, {2 * kFeatures, kTerms}, random_values(2 * kFeatures * kTerms, 5)),
                         weight({2 * kFeatures}, random_values(2 * kFeatures, 11))},
              .attrs = {{"activation", std::string("silu")}},
              .precision = precision};
  add_norm(test, norm, kTerms);
  return test;
}

// What stands before and behind the output projection of an attention, and more: a norm, a bias, a residual.
std::vector<BenchCall> calls(const std::string& format, Precision precision) {
  return bench_calls("", true, [format, precision](const BenchModel& model, int64_t tokens) {
    OpCase test{
        .op = "fused_linear",
        .inputs = {random_activation({tokens, model.hidden}, 7), repeated_weight(format, model.hidden, model.hidden),
                   weight({model.hidden}, random_values(model.hidden, 11))},
        .attrs = {{"splits", std::vector<int64_t>{model.hidden}}},
        .precision = precision};
    add_norm(test, "layer", model.hidden);
    test.inputs.push_back(random_activation({tokens, model.hidden}, 19));
    return test;
  });
}

// Adds cases in one format and precision.
struct Adder {
  CaseRegistry& registry;
  std::string format;
  Precision precision;

  // `rows`: operands that have rows.
  template <class Make>
  void operator()(const std::string& op, const std::string& swept, std::vector<int64_t> sizes, Make make,
                  std::vector<size_t> rows, std::vector<BenchCall> bench = {}) const {
    const bool fast = precision == Precision::kFast;
    registry.add({.name = op + "/" + format + (fast ? "/fast/" : "/exact/") + swept,
                  .op = op,
                  .make = make,
                  .sizes = std::move(sizes),
                  .tolerance = fast ? 0.03 : 5e-6,
                  .why = fast ? "x as 8 bits a term, which the oracle has whole; bits have a test of their own"
                              : "one rounded chain over the terms of a normalized row",
                  .rows = std::move(rows),
                  .bench = std::move(bench)});
  }
};

void register_format(const Adder& add) {
  const std::string format = add.format;
  const Precision precision = add.precision;
  const bool measured = format == "f32" || (format == "q4_1" && precision == Precision::kFast);
  // Row counts: one, few, beyond the tile, beyond a block of rows; all parts by turns.
  add(
      "fused_linear", "rows", {0, 1, 2, 3, 4, 5, 8, 13, 16, 17, 64, 129, 300},
      [=](int64_t n) {
        return fused_linear(format, precision,
                            {.rows = n,
                             .norm = kNorms[static_cast<size_t>(n % 3)],
                             .activation = n % 4 == 0 ? "gelu_tanh" : "none",
                             .bias = n % 2 == 0,
                             .residual = true});
      },
      {0, 5}, measured ? calls(format, precision) : std::vector<BenchCall>());
  add("fused_linear", "features", around_vectors(1),
      [=](int64_t n) {
        return fused_linear(format, precision,
                            {.rows = n % 3 == 0 ? 20 : n % 3,
                             .splits = {n},
                             .terms = 64,
                             .norm = "rms",
                             .bias = n % 2 == 0,
                             .residual = true});
      },
      {0, 5});
  add("fused_linear", "splits", {1, 7, 15, 16, 17, 33},
      [=](int64_t n) {
        return fused_linear(format, precision,
                            {.rows = n % 2 == 0 ? 1 : n,
                             .splits = {20, n, 37},
                             .terms = 64,
                             .norm = n % 2 == 0 ? "rms" : "layer",
                             .activation = n % 3 == 0 ? "relu" : "none",
                             .bias = true});
      },
      {0});
  // More terms than one pass takes; few rows that are normalized in a phase of their own.
  add("fused_linear", "long_rows", {1, 9, 10, 16, 20},
      [=](int64_t n) {
        return fused_linear(format, precision, {.rows = n, .splits = {40}, .terms = 1696, .norm = "layer"});
      },
      {0});
  add("fused_gate_up", "norm", {0, 1, 2, 5, 20, 150},
      [=](int64_t n) { return normed_gate_up(format, precision, n, n % 2 == 0 ? "rms" : "layer"); }, {0});
}

}  // namespace

void register_case_fused_linear(CaseRegistry& registry) {
  for (const std::string format : kFormats) {
    register_format({registry, format, Precision::kExact});
    if (format[0] == 'q') register_format({registry, format, Precision::kFast});
  }
  const Adder f32{registry, "f32", Precision::kExact};
  f32("fused_linear", "terms", around_vectors(1),
      [](int64_t n) {
        return fused_linear("f32", Precision::kExact,
                            {.rows = n % 3 == 0 ? 20 : n % 3 * 2,
                             .splits = {19},
                             .terms = n,
                             .norm = n % 2 == 0 ? "rms" : "layer",
                             .residual = true});
      },
      {0, 5});
  for (const std::string name : {"silu", "gelu_none", "gelu_tanh", "relu"}) {
    f32("fused_linear", name, {0, 1, 3, 5, 20, 150},
        [name](int64_t n) {
          return fused_linear("f32", Precision::kExact,
                              {.rows = n, .splits = {21}, .terms = 33, .activation = name, .residual = true});
        },
        {0, 5});
  }
}

}  // namespace atb

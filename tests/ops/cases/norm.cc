// SPDX-License-Identifier: Apache-2.0
// Cases of rms_norm, layer_norm and fused_add_norm.
#include "ops/cases/case_util.h"

namespace atb {
namespace {

using namespace testing;

constexpr int64_t kRows = 5;

Operand vector_of(int64_t n, uint32_t seed) { return weight({n}, random_values(n, seed)); }
Operand rows_of(int64_t n, uint32_t seed) { return random_activation({kRows, n}, seed, 3.0f); }

template <class Make>
void add(CaseRegistry& registry, const std::string& op, const std::string& form, std::vector<size_t> rows, Make make,
         std::vector<BenchCall> bench = {}) {
  registry.add({.name = op + "/" + form,
                .op = op,
                .make = make,
                .sizes = around_vectors(1),
                .tolerance = 2e-6,
                .why = "sums of n rounded terms in several chains; a mean that cancels",
                .rows = std::move(rows),
                .bench = std::move(bench)});
}

}  // namespace

void register_case_norm(CaseRegistry& registry) {
  const Attrs eps{{"eps", 1e-5}};
  const Attrs rms{{"eps", 1e-5}, {"kind", std::string("rms")}};
  const Attrs layer{{"eps", 1e-5}, {"kind", std::string("layer")}};
  add(
      registry, "rms_norm", "weight", {0},
      [eps](int64_t n) {
        return OpCase{.op = "rms_norm", .inputs = {rows_of(n, 1), vector_of(n, 2)}, .attrs = eps};
      },
      bench_calls("", false, [eps](const BenchModel& model, int64_t tokens) {
        return OpCase{.op = "rms_norm",
                      .inputs = {random_activation({tokens, model.hidden}, 1), vector_of(model.hidden, 2)},
                      .attrs = eps};
      }));
  add(registry, "rms_norm", "weight_of_the_step", {0}, [eps](int64_t n) {
    return OpCase{.op = "rms_norm", .inputs = {rows_of(n, 1), random_activation({n}, 2)}, .attrs = eps};
  });
  add(registry, "layer_norm", "plain", {0},
      [eps](int64_t n) { return OpCase{.op = "layer_norm", .inputs = {rows_of(n, 1)}, .attrs = eps}; });
  add(registry, "layer_norm", "weight", {0}, [eps](int64_t n) {
    return OpCase{.op = "layer_norm", .inputs = {rows_of(n, 1), vector_of(n, 2)}, .attrs = eps};
  });
  add(registry, "layer_norm", "bias", {0}, [eps](int64_t n) {
    return OpCase{.op = "layer_norm", .inputs = {rows_of(n, 1), no_operand(), vector_of(n, 3)}, .attrs = eps};
  });
  add(registry, "layer_norm", "weight_and_bias", {0}, [eps](int64_t n) {
    return OpCase{.op = "layer_norm", .inputs = {rows_of(n, 1), vector_of(n, 2), vector_of(n, 3)}, .attrs = eps};
  });
  add(
      registry, "fused_add_norm", "rms", {0, 1},
      [rms](int64_t n) {
        return OpCase{.op = "fused_add_norm", .inputs = {rows_of(n, 1), rows_of(n, 2), vector_of(n, 3)}, .attrs = rms};
      },
      bench_calls("", false, [rms](const BenchModel& model, int64_t tokens) {
        const std::vector<int64_t> shape{tokens, model.hidden};
        return OpCase{.op = "fused_add_norm",
                      .inputs = {random_activation(shape, 1), random_activation(shape, 2), vector_of(model.hidden, 3)},
                      .attrs = rms};
      }));
  add(registry, "fused_add_norm", "layer", {0, 1}, [layer](int64_t n) {
    return OpCase{.op = "fused_add_norm",
                  .inputs = {rows_of(n, 1), rows_of(n, 2), vector_of(n, 3), vector_of(n, 4)},
                  .attrs = layer};
  });
}

}  // namespace atb

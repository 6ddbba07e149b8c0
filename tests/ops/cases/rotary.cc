// SPDX-License-Identifier: Apache-2.0
// Cases of rotary_table, rotary, rotary_embedding and rotary_kv_append.
#include <cmath>

#include "ops/cases/case_util.h"
#include "ops/kv_fixture.h"

namespace atb {
namespace {

using namespace testing;

constexpr const char* kTwoProducts = "two products and a sum, rounded one by one";

std::vector<float> inverse_frequencies(int64_t half) {
  std::vector<float> values;
  for (int64_t i = 0; i < half; ++i) {
    values.push_back(static_cast<float>(std::pow(1e4, -static_cast<double>(i) / static_cast<double>(half))));
  }
  return values;
}

Operand table(int64_t tokens, int64_t half, uint32_t seed) { return random_activation({tokens, half}, seed); }

// Heads of 2 n + 3 features of which 2 n rotate: partial rotary and odd widths.
void add_rotary(CaseRegistry& registry, bool interleaved) {
  const std::string form = interleaved ? "interleaved" : "halves";
  const Attrs attrs{{"interleaved", interleaved}};
  registry.add({.name = "rotary/" + form,
                .op = "rotary",
                .make =
                    [attrs](int64_t n) {
                      return OpCase{.op = "rotary",
                                    .inputs = {random_activation({4, 3, 2 * n + 3}, 1), table(4, n, 2), table(4, n, 3)},
                                    .attrs = attrs};
                    },
                .sizes = around_vectors(),
                .tolerance = 3e-7,
                .why = kTwoProducts,
                .same_as_f32 = true,
                .rows = {0, 1, 2}});
  registry.add({.name = "rotary_embedding/" + form,
                .op = "rotary_embedding",
                .make =
                    [attrs](int64_t n) {
                      return OpCase{.op = "rotary_embedding",
                                    .inputs = {random_activation({4, 4, 2 * n + 1}, 1),
                                               random_activation({4, 2, 2 * n + 1}, 4), table(4, n, 2), table(4, n, 3)},
                                    .attrs = attrs};
                    },
                .sizes = around_vectors(),
                .tolerance = 3e-7,
                .why = kTwoProducts,
                .same_as_f32 = true,
                .rows = {0, 1, 2, 3},
                .bench = bench_calls("", false, [attrs](const BenchModel& m, int64_t tokens) {
                  return OpCase{.op = "rotary_embedding",
                                .inputs = {random_activation({tokens, m.heads, m.head_dim}, 1),
                                           random_activation({tokens, m.kv_heads, m.head_dim}, 4),
                                           table(tokens, m.head_dim / 2, 2), table(tokens, m.head_dim / 2, 3)},
                                .attrs = attrs};
                })});
}

OpCase rotary_kv_append(const KvLayout& layout, std::vector<CachePart> parts, int64_t heads, int64_t half,
                        bool interleaved) {
  auto cache = std::make_shared<KvFixture>(layout, std::move(parts), 0, false);
  const int64_t rows = cache->rows();
  return {.op = "rotary_kv_append",
          .inputs = {random_activation({rows, heads, layout.head_dim}, 1),
                     random_activation({rows, layout.kv_heads, layout.head_dim}, 2),
                     random_activation({rows, layout.kv_heads, layout.head_dim}, 3), table(rows, half, 4),
                     table(rows, half, 5), state()},
          .attrs = {{"slot", int64_t{0}}, {"interleaved", interleaved}},
          .cache = cache};
}

// A batch of sequences [B, T, H, D]; the tables are those of one.
OpCase rotary_kv_append_batch(const KvLayout& layout, int64_t tokens, int64_t half) {
  auto cache =
      std::make_shared<KvFixture>(layout, std::vector<CachePart>{{5, tokens}, {5, tokens}, {5, tokens}}, 0, false);
  return {.op = "rotary_kv_append",
          .inputs = {random_activation({3, tokens, 4, layout.head_dim}, 1),
                     random_activation({3, tokens, layout.kv_heads, layout.head_dim}, 2),
                     random_activation({3, tokens, layout.kv_heads, layout.head_dim}, 3), table(tokens, half, 4),
                     table(tokens, half, 5), state()},
          .attrs = {{"slot", int64_t{0}}},
          .cache = cache};
}

void add_append(CaseRegistry& registry, DType dtype, bool interleaved) {
  const bool half = dtype == DType::kBF16;
  registry.add({.name = std::string("rotary_kv_append/") + std::string(dtype_name(dtype)) +
                        (interleaved ? "/interleaved" : "/halves"),
                .op = "rotary_kv_append",
                .make =
                    [=](int64_t n) {
                      const KvLayout layout{dtype, 1, 2, 2 * n + 2, 16};
                      return rotary_kv_append(layout, {{5, n % 40}, {0, 3}, {31, 2}}, 4, n, interleaved);
                    },
                .sizes = around_vectors(),
                .tolerance = half ? 4e-3 : 3e-7,
                .why = half ? "the cache rounds to 8 bits" : kTwoProducts,
                .bench = bench_calls("", false, [=](const BenchModel& m, int64_t tokens) {
                  const KvLayout layout{dtype, 1, m.kv_heads, m.head_dim, 32};
                  return rotary_kv_append(layout, {{0, tokens}}, m.heads, m.head_dim / 2, interleaved);
                })});
}

}  // namespace

void register_case_rotary(CaseRegistry& registry) {
  registry.add({.name = "rotary_kv_append/batch",
                .op = "rotary_kv_append",
                .make =
                    [](int64_t n) {
                      return rotary_kv_append_batch({DType::kF32, 1, 2, 16, 16}, n, 7);
                    },
                .sizes = {1, 2, 11, 12, 40},
                .tolerance = 3e-7,
                .why = kTwoProducts});
  registry.add({.name = "rotary_table/positions",
                .op = "rotary_table",
                .make =
                    [](int64_t n) {
                      const DType dtype = n % 2 == 0 ? DType::kI32 : DType::kI64;
                      return OpCase{
                          .op = "rotary_table",
                          .inputs = {integers({7}, counting(7, 100 * n), dtype), weight({n}, inverse_frequencies(n))},
                          .attrs = {{"scale", 1.25}}};
                    },
                .sizes = around_vectors(),
                .tolerance = 2e-7,
                .why = "trigonometry in f64 of the f32 angle, rounded, then a product",
                .rows = {0}});
  for (const bool interleaved : {false, true}) {
    add_rotary(registry, interleaved);
    for (const DType dtype : {DType::kF32, DType::kBF16}) add_append(registry, dtype, interleaved);
  }
}

}  // namespace atb

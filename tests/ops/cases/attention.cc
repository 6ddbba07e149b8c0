// SPDX-License-Identifier: Apache-2.0
// Cases of flash_attention, flash_attention_kv and kv_append.
#include <cmath>
#include <limits>

#include "ops/cases/case_util.h"
#include "ops/kv_fixture.h"

namespace atb {
namespace {

using namespace testing;

constexpr double kTolerance = 4e-6;
constexpr const char* kWhy = "rounded chains over the head and the keys, exponentials within an ulp";

double scale_of(int64_t head_dim) { return 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, head_dim))); }

// Head sizes around vectors, without zero.
struct FlashShape {
  int64_t batch, tokens, heads, kv_heads, keys, head_dim;
};

OpCase flash(const FlashShape& s, bool causal, int64_t window, bool mask) {
  OpCase test{.op = "flash_attention",
              .inputs = {random_activation({s.batch, s.tokens, s.heads, s.head_dim}, 1, 3.0f),
                         random_activation({s.batch, s.keys, s.kv_heads, s.head_dim}, 2, 3.0f),
                         random_activation({s.batch, s.keys, s.kv_heads, s.head_dim}, 3)},
              .attrs = {{"scale", scale_of(s.head_dim)}, {"causal", causal}, {"window", window}}};
  if (!mask) return test;
  Operand hidden = random_activation({s.tokens, s.keys}, 4);
  for (size_t i = 0; i < hidden.tensor->f.size(); i += 5) {
    hidden.tensor->f[i] = -std::numeric_limits<float>::infinity();
  }
  test.inputs.push_back(std::move(hidden));
  return test;
}

// Scores of up to about 8 are bent by a cap of 5.
OpCase capped(OpCase test) {
  test.attrs.set("softcap", 5.0);
  return test;
}

// Adds a case named op + "/" + prefix + form.
struct Adder {
  CaseRegistry& registry;
  std::string op;
  std::string prefix;

  void operator()(const char* form, std::vector<int64_t> sizes, std::function<OpCase(int64_t)> make,
                  std::vector<BenchCall> bench = {}) const {
    registry.add({.name = op + "/" + prefix + form,
                  .op = op,
                  .make = std::move(make),
                  .sizes = std::move(sizes),
                  .tolerance = kTolerance,
                  .why = kWhy,
                  .bench = std::move(bench)});
  }
};

void register_flash(CaseRegistry& registry) {
  const Adder add{registry, "flash_attention", ""};
  add(
      "causal/head_dim", around_vectors(1),
      [](int64_t n) {
        return flash({2, 7, 4, 2, 7, n}, true, 0, false);
      },
      bench_calls("", false, [](const BenchModel& m, int64_t tokens) {
        return flash({1, tokens, m.heads, m.kv_heads, 512, m.head_dim}, true, 0, false);
      }));
  add("full/keys", {1, 2, 15, 16, 17, 33, 127, 128, 129, 270}, [](int64_t n) {
    return flash({1, 9, 2, 1, n, 24}, false, 0, false);
  });
  add("window/tokens", {1, 3, 17, 64, 140}, [](int64_t n) { return flash({1, n, 2, 2, n + 5, 16}, true, 20, false); });
  add("mask/keys", {1, 5, 16, 31, 130}, [](int64_t n) { return flash({2, 6, 4, 2, n, 16}, false, 0, true); });
  add("softcap/keys", {1, 5, 16, 31, 130}, [](int64_t n) {
    return capped(flash({2, 6, 4, 2, n, 16}, false, 0, true));
  });
}

OpCase attend(const KvLayout& layout, std::vector<CachePart> parts, int64_t heads, int64_t window) {
  auto cache = std::make_shared<KvFixture>(layout, std::move(parts), 0, true);
  return {.op = "flash_attention_kv",
          .inputs = {random_activation({cache->rows(), heads, layout.head_dim}, 1, 3.0f), state()},
          .attrs = {{"slot", int64_t{0}},
                    {"scale", scale_of(layout.head_dim)},
                    {"window", window},
                    {"kv_heads", layout.kv_heads}},
          .cache = cache};
}

// The same with a mask [B or 1, H or 1, rows or 1, S] in which each fifth number is -inf, and the first `blind` keys.
OpCase masked(OpCase test, std::vector<int64_t> shape, int64_t blind) {
  Operand mask = random_activation(shape, 5);
  for (size_t i = 0; i < mask.tensor->f.size(); ++i) {
    const bool hidden = i % 5 == 0 || static_cast<int64_t>(i) % shape[3] < blind;
    if (hidden) mask.tensor->f[i] = -std::numeric_limits<float>::infinity();
  }
  test.inputs.push_back(std::move(mask));
  return test;
}

std::vector<BenchCall> attend_calls(DType dtype) {
  std::vector<BenchCall> calls;
  for (const BenchModel& model : kBenchModels) {
    for (const auto& [name, past, rows] :
         {std::tuple{"decode_at_2048", int64_t{2047}, int64_t{1}}, {"prefill512", int64_t{0}, int64_t{512}}}) {
      const CachePart part{past, rows};
      calls.push_back({std::string(model.name) + "/" + name, [model, part, dtype] {
                         return attend({dtype, 1, model.kv_heads, model.head_dim, 32}, {part}, model.heads, 0);
                       }});
    }
  }
  return calls;
}

void register_attend(CaseRegistry& registry, DType dtype) {
  const Adder add{registry, "flash_attention_kv", std::string(dtype_name(dtype)) + "/"};
  add(
      "head_dim", around_vectors(1),
      [dtype](int64_t n) {
        return attend({dtype, 1, 2, n, 32}, {{20, 3}, {0, 5}, {40, 1}}, 6, 0);
      },
      attend_calls(dtype));
  add("past", {0, 1, 15, 16, 127, 128, 129, 270}, [dtype](int64_t n) {
    return attend({dtype, 1, 1, 16, 16}, {{n, 1}, {n, 20}}, 4, 0);
  });
  add("softcap", {0, 1, 15, 16, 127, 128, 129, 270}, [dtype](int64_t n) {
    return capped(attend({dtype, 1, 1, 16, 16}, {{n, 1}, {n, 20}}, 4, 0));
  });
  add("window", {1, 15, 16, 130, 300}, [dtype](int64_t n) {
    return attend({dtype, 1, 2, 16, 32}, {{290, 1}, {120, 30}}, 2, n);
  });
  add("mask", {0, 1, 15, 16, 127, 128, 129, 270}, [dtype](int64_t n) {
    return masked(attend({dtype, 1, 2, 16, 16}, {{n, 3}, {n, 3}}, 4, 0), {2, 4, 3, n + 3}, 0);
  });
  add("mask_of_keys", {1, 15, 130, 300}, [dtype](int64_t n) {
    return masked(attend({dtype, 1, 1, 16, 32}, {{290, 1}, {n, 20}}, 2, 0), {2, 1, 1, 320}, 140);
  });
  add("mask_and_window", {1, 15, 130, 300}, [dtype](int64_t n) {
    return capped(masked(attend({dtype, 1, 1, 16, 32}, {{290, 4}, {120, 9}}, 2, n), {1, 2, 9, 300}, 2));
  });
}

OpCase append(const KvLayout& layout, std::vector<CachePart> parts) {
  auto cache = std::make_shared<KvFixture>(layout, std::move(parts), 0, false);
  const std::vector<int64_t> shape{cache->rows(), layout.kv_heads, layout.head_dim};
  return {.op = "kv_append",
          .inputs = {random_activation(shape, 1), random_activation(shape, 2), state()},
          .attrs = {{"slot", int64_t{0}}},
          .cache = cache};
}

void register_append(CaseRegistry& registry, DType dtype) {
  const bool half = dtype == DType::kBF16;
  registry.add({.name = "kv_append/" + std::string(dtype_name(dtype)),
                .op = "kv_append",
                .make =
                    [dtype](int64_t n) {
                      return append({dtype, 1, 2, std::max<int64_t>(1, n), 16}, {{n, 3}, {0, n}, {31, 1}});
                    },
                .sizes = around_vectors(),
                .tolerance = half ? 4e-3 : 0,
                .why = half ? "the cache rounds to 8 bits" : "copies"});
}

}  // namespace

void register_case_attention(CaseRegistry& registry) {
  register_flash(registry);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    register_attend(registry, dtype);
    register_append(registry, dtype);
  }
}

}  // namespace atb

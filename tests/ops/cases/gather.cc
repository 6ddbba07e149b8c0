// SPDX-License-Identifier: Apache-2.0
// Cases of embedding and gather_rows.
#include "ops/cases/case_util.h"

namespace atb {
namespace {

using namespace testing;

constexpr int64_t kTableRows = 11;

Operand ids(int64_t n, int64_t rows, DType dtype = DType::kI32) {
  std::vector<int64_t> values = counting(n);
  for (int64_t& value : values) value = value * 7 % rows;
  return integers({n}, std::move(values), dtype);
}

void add_embedding(CaseRegistry& registry, const std::string& form, const std::string& format, DType id_dtype,
                   bool width_is_n) {
  registry.add({.name = "embedding/" + form,
                .op = "embedding",
                .make =
                    [=](int64_t n) {
                      const int64_t width = width_is_n ? n : 64;
                      return OpCase{.op = "embedding",
                                    .inputs = {ids(width_is_n ? 4 : n, kTableRows, id_dtype),
                                               weight({kTableRows, width}, random_values(kTableRows * width, 3),
                                                      find_encoding(format))}};
                    },
                .sizes = width_is_n ? around_vectors(1) : std::vector<int64_t>{0, 1, 2, 3, 7, 16, 33},
                .why = "decoding is exact",
                .same_as_f32 = true,
                .rows = {0},
                .bench = format != "q4_1" ? std::vector<BenchCall>{}
                                          : bench_calls("", false, [](const BenchModel& model, int64_t tokens) {
                                              return OpCase{.op = "embedding",
                                                            .inputs = {ids(tokens, 4096),
                                                                       repeated_weight("q4_1", 4096, model.hidden)}};
                                            })});
}

}  // namespace

void register_case_gather(CaseRegistry& registry) {
  add_embedding(registry, "f32/width", "f32", DType::kI32, true);
  add_embedding(registry, "f32/i64_ids", "f32", DType::kI64, false);
  for (const Encoding* encoding : encodings()) {
    const bool fits = encoding->encode != nullptr && 64 % encoding->block_elems == 0;
    if (fits) add_embedding(registry, encoding->name + "/ids", encoding->name, DType::kI32, false);
  }
  const auto add_gather = [&](const char* form, DType dtype) {
    registry.add(
        {.name = std::string("gather_rows/") + form,
         .op = "gather_rows",
         .make =
             [dtype](int64_t n) {
               return OpCase{.op = "gather_rows", .inputs = {random_activation({9, n}, 1), ids(n % 12, 9, dtype)}};
             },
         .sizes = around_vectors(),
         .why = "copies",
         .same_as_f32 = true,
         .rows = {1}});
  };
  add_gather("i32", DType::kI32);
  add_gather("i64", DType::kI64);
}

}  // namespace atb

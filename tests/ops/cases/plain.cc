// SPDX-License-Identifier: Apache-2.0
// Cases of matmul, softmax, reshape and transpose: views, and what only unfused graphs have.
#include "ops/cases/case_util.h"

namespace atb {
namespace {

using namespace testing;

void add(CaseRegistry& registry, const std::string& name, bool kernel, std::function<OpCase(int64_t)> make) {
  registry.add({.name = name,
                .op = name.substr(0, name.find('/')),
                .make = std::move(make),
                .sizes = {0, 1, 2, 7, 16, 33},
                .tolerance = 1e-6,
                .why = "chains of a few rounded terms",
                .kernel = kernel});
}

}  // namespace

void register_case_plain(CaseRegistry& registry) {
  for (const bool transpose_b : {false, true}) {
    add(registry, transpose_b ? "matmul/transposed" : "matmul/plain", true, [transpose_b](int64_t n) {
      const std::vector<int64_t> b = transpose_b ? std::vector<int64_t>{1, 5, n} : std::vector<int64_t>{1, n, 5};
      return OpCase{.op = "matmul",
                    .inputs = {random_activation({2, 3, 4, n}, 1), random_activation(b, 2)},
                    .attrs = {{"transpose_b", transpose_b}}};
    });
  }
  add(registry, "softmax/rows", true, [](int64_t n) {
    return OpCase{.op = "softmax", .inputs = {random_activation({3, n}, 1, 10.0f)}};
  });
  add(registry, "reshape/split", false, [](int64_t n) {
    return OpCase{
        .op = "reshape", .inputs = {random_activation({6, n}, 1)}, .attrs = {{"shape", Shape{Dim(2), Dim(3), Dim(n)}}}};
  });
  add(registry, "transpose/three_axes", false, [](int64_t n) {
    return OpCase{.op = "transpose",
                  .inputs = {random_activation({2, n, 3}, 1)},
                  .attrs = {{"perm", std::vector<int64_t>{2, 0, 1}}}};
  });
}

}  // namespace atb

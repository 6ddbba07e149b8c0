// SPDX-License-Identifier: Apache-2.0
// Cases of external: by its definition, and by a kernel from outside.
#include "ops/cases/case_util.h"
#include "ops/plugin_util.h"

namespace atb {
namespace {

using namespace testing;

constexpr const char* kScaledSum = R"(graph @scaled_sum(%x: f32[N], %y: f32[N]) {
  const @half : f32[] = 0.5
  %sum = add(%x, %y) : f32[N]
  %out = mul(%sum, @half) : f32[N]
  return %out
}
)";

int64_t count_units(const atb_call* call) { return call->outputs[0].shape[0]; }

int32_t run_scaled_sum(const atb_call* call, int64_t begin, int64_t end) {
  const auto at = [](const atb_tensor& tensor, int64_t i) {
    return static_cast<float*>(tensor.data) + i * tensor.strides[0];
  };
  end = std::min(end, call->outputs[0].shape[0]);  // one unit where there is nothing to do
  for (int64_t i = begin; i < end; ++i) {
    *at(call->outputs[0], i) = 0.5f * (*at(call->inputs[0], i) + *at(call->inputs[1], i));
  }
  return 0;
}

void add(CaseRegistry& registry, const std::string& form, const std::string& kernel) {
  registry.add({.name = "external/" + form,
                .op = "external",
                .make =
                    [kernel](int64_t n) {
                      return OpCase{.op = "external",
                                    .inputs = {random_activation({n}, 1), random_activation({n}, 2)},
                                    .attrs = {{"target", std::string("test::scaled_sum")},
                                              {"body", std::string(kScaledSum)},
                                              {"kernel", kernel}}};
                    },
                .sizes = {0, 1, 2, 7, 16, 33},
                .tolerance = 1e-6,
                .why = "one rounded sum",
                .kernel = !kernel.empty()});
}

}  // namespace

void register_case_external(CaseRegistry& registry) {
  static const atb_kernel kernels[] = {{"test::halved_sum", nullptr, count_units, run_scaled_sum}};
  static const atb_plugin plugin = {ATB_PLUGIN_ABI, 1, kernels};
  add_plugin(plugin, "the cases of external");
  add(registry, "body", "");
  add(registry, "plugin", "test::halved_sum");
}

}  // namespace atb

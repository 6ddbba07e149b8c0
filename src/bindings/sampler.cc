// SPDX-License-Identifier: Apache-2.0
#include "bindings/sampler.h"

#include <nanobind/stl/string.h>

#include <limits>

#include "bindings/arrays.h"
#include "core/error.h"
#include "runtime/generate/sampling.h"

namespace atb {
namespace {

namespace nb = nanobind;

Sampler make_sampler(int64_t max_new_tokens, double temperature, int64_t top_k, double top_p, uint64_t seed) {
  const SamplingParams params{
      .temperature = temperature, .top_k = top_k, .top_p = top_p, .seed = seed, .max_new_tokens = max_new_tokens};
  validate(params, std::numeric_limits<int32_t>::max());
  return Sampler(params);
}

int32_t sample(Sampler& sampler, nb::handle logits, uint64_t index) {
  const BorrowedArray row = borrow_array(logits, "[sample] logits");
  require(row.view.dtype == DType::kF32 && row.view.rank == 1 && row.view.contiguous() && row.view.size() > 0,
          Code::kInvalidArgument, "[sample] logits must be a dense f32 array [vocabulary]");
  return sampler.sample({row.view.as<const float>(), static_cast<size_t>(row.view.size())}, index);
}

}  // namespace

void bind_sampler(nb::module_& module) {
  nb::class_<Sampler>(module, "Sampler", "Chooses the tokens of one request, as the engine does.")
      .def(nb::new_(&make_sampler), nb::arg("max_new_tokens"), nb::arg("temperature") = 0.0, nb::arg("top_k") = 0,
           nb::arg("top_p") = 1.0, nb::arg("seed") = 0)
      .def("sample", &sample, nb::arg("logits"), nb::arg("index"),
           nb::sig("def sample(self, logits: typing.Any, index: int) -> int"),
           "Token number `index` of the request's output, from f32 logits [vocabulary].");
}

}  // namespace atb

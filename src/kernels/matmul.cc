// SPDX-License-Identifier: Apache-2.0
// The weight formats of this build.
#include "kernels/matmul.h"

#include "hwy/highway.h"
#include "kernels/matmul_formats.h"
#include "kernels/target.h"

namespace atb {

std::optional<MatmulFormat> find_matmul_format(std::string_view name, bool int8) {
  require_cpu_target();
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  if (name == "q8_0") return matmul_q8_0(int8);
  if (name == "q4_0") return matmul_q4_0(int8);
  if (name == "q4_1") return matmul_q4_1(int8);
  if (int8) return std::nullopt;
  if (name == "f32") return matmul_f32();
  if (name == "f16") return matmul_f16();
  if (name == "bf16") return matmul_bf16();
  return std::nullopt;
}

}  // namespace atb

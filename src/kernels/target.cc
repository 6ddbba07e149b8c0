// SPDX-License-Identifier: Apache-2.0
// Which of the compiled SIMD targets this CPU runs.
#include "kernels/target.h"

#include <atomic>

#include "core/error.h"
#include "hwy/highway.h"

namespace atb {
namespace {

// Set while a test forces a target: it may be below what users' machines must have.
std::atomic<bool> forced = false;

bool is_vector_target(int64_t target) { return target != 0 && target != HWY_SCALAR && target != HWY_EMU128; }

// AVX2 on x86; every vector target elsewhere. Lower bits are better targets.
bool is_least_target(int64_t target) {
#if HWY_ARCH_X86
  return target != 0 && target <= HWY_AVX2;
#else
  return is_vector_target(target);
#endif
}

int64_t best_target() {
  const int64_t usable = HWY_SUPPORTED_TARGETS & HWY_TARGETS;
  return usable & ~(usable - 1);  // the lowest bit is the best
}

}  // namespace

std::string_view cpu_target_name() { return hwy::TargetName(best_target()); }

std::vector<std::string_view> compiled_cpu_targets() {
  std::vector<std::string_view> names;
  for (int64_t left = HWY_TARGETS; left != 0; left &= left - 1) names.emplace_back(hwy::TargetName(left & -left));
  return names;
}

std::vector<std::string_view> cpu_targets() {
  std::vector<std::string_view> names;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) names.emplace_back(hwy::TargetName(target));
  return names;
}

void require_cpu_target() {
  const int64_t target = best_target();
  require(forced ? is_vector_target(target) : is_least_target(target), Code::kUnsupported,
          "[cpu] this CPU lacks the vector instructions that the kernels need: has ", hwy::TargetName(target),
          ", needs at least AVX2 with FMA and F16C (x86) or NEON (Arm); run on a newer CPU");
}

void force_cpu_target(std::string_view name) {
  hwy::SetSupportedTargetsForTest(0);
  forced = !name.empty();
  int64_t wanted = 0;
  if (!name.empty()) {
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      if (name == hwy::TargetName(target)) wanted = target;
    }
    require(wanted != 0, Code::kInvalidArgument, "[cpu] no target ", name, " in this build on this CPU");
    hwy::SetSupportedTargetsForTest(wanted);
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace atb

// SPDX-License-Identifier: Apache-2.0
// Which of the compiled SIMD targets this CPU runs. Kernels are compiled for several; the best is chosen at run time.
#pragma once

#include <string_view>
#include <vector>

namespace atb {

// Name of the target that kernels use: "AVX3_DL", "AVX3", "AVX2", "NEON", ...; "SCALAR" where none of them fits.
std::string_view cpu_target_name();

// Targets compiled into this build, best first; and those of them that the CPU can run.
std::vector<std::string_view> compiled_cpu_targets();
std::vector<std::string_view> cpu_targets();

// kUnsupported where the CPU is below the least that this library supports (AVX2 on x86, NEON on Arm). Builds with
// ATB_TEST_TARGETS have SSE4 too, so that tests meet several targets everywhere; only force_cpu_target() gets there.
void require_cpu_target();

// For tests: kernels made from now on use this target. kInvalidArgument unless cpu_targets() has it; empty: the best.
void force_cpu_target(std::string_view name);

}  // namespace atb

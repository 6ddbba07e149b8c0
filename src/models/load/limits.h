// SPDX-License-Identifier: Apache-2.0
// Bounds on what a configuration may ask for, far above any real model: a hostile file must not choose how much is
// built.
#pragma once

#include <cstdint>

namespace atb {

constexpr int64_t kMaxLayers = 512;
constexpr int64_t kMaxHeadDim = 8192;
constexpr int64_t kMaxBatch = 4096;  // sequences of one step, the range of symbol B

}  // namespace atb

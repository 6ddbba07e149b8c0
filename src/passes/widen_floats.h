// SPDX-License-Identifier: Apache-2.0
// Pass: half-precision activations are computed in f32.
#pragma once

#include "ir/graph.h"

namespace atb {

// Where a graph has activations in f16 or bf16, all of them become f32 and the casts between operators go; inputs are
// cast once, outputs are cast to what the graph said. Weights keep their dtype: operators that take them read halves.
// Each value is the one that the graph rounded, without the rounding, so results are closer to exact ones. Where a
// half decides something discrete (a comparison, a cast to integers) it is rounded as the graph said.
// Replaces the contents of `graph`; one without halves, or with state, stays as it is. Returns the number of values
// widened.
int64_t widen_floats(Graph& graph);

}  // namespace atb

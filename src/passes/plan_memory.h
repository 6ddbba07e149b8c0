// SPDX-License-Identifier: Apache-2.0
// Memory planning: buffers with lifetimes to offsets in one arena, measured against the lower bound.
#pragma once

#include <cstdint>
#include <vector>

namespace atb {

// Alive during [lower, upper), in steps of whatever clock the caller uses (node positions). Two buffers conflict when
// their lifetimes meet and both have bytes.
struct PlannedBuffer {
  int64_t id = 0;  // the caller's name for it, for messages
  int64_t lower = 0;
  int64_t upper = 0;
  int64_t size = 0;  // bytes
};

struct PlanMemoryOptions {
  int64_t alignment = 64;  // of offsets; sizes are rounded up to it. A power of two
  // Steps of the search that follows the greedy placements (none is needed where those reach the lower bound), about a
  // nanosecond each. A count and not a time, so that the result is always the same. 0: greedy only.
  int64_t search_work = 600'000'000;
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // in the order of the buffers; conflicting ones do not overlap
  int64_t total = 0;             // bytes of the arena
  int64_t lower_bound = 0;       // largest sum of (rounded) sizes alive at one time: no plan can be smaller
};

// Deterministic. kInvalidArgument naming the buffer for upper <= lower, a negative size, a sum beyond 2^62, or a bad
// alignment.
MemoryPlan plan_memory(const std::vector<PlannedBuffer>& buffers, const PlanMemoryOptions& options = {});

// Largest sum of sizes alive at one time, without rounding.
int64_t live_bytes_bound(const std::vector<PlannedBuffer>& buffers);

}  // namespace atb

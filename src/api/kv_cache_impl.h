// SPDX-License-Identifier: Apache-2.0
// The public KvCache: slots, and which block has which.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "api/kv_slots.h"
#include "atb/kv_cache.h"

namespace atb {

// Blocks go by a number of their own, which no other block of the process has.
struct KvCache::Impl {
  KvCacheOptions options;
  std::unique_ptr<KvSlots> slots;
  mutable std::mutex mutex;                           // guards what follows
  std::map<uint64_t, std::vector<int64_t>> owners{};  // of slots
  int64_t taken = 0;

  // The slots of a block, `count` of them, taken at its first call. kInvalidArgument where its heads are not the
  // cache's, or no slot is left.
  std::vector<int64_t> slots_of(uint64_t block, int64_t count, int64_t heads, int64_t head_dim);
  // Tokens that the slots of a block hold, 0 for one that has none. kFailedPrecondition where they differ.
  int64_t held_by(uint64_t block) const;
  // The first slot of a block, or the one that it would take.
  int64_t first_slot(uint64_t block) const;
};

}  // namespace atb

// SPDX-License-Identifier: Apache-2.0
// The keys and values of attentions that say kv_cache, so that a call of their block computes its new tokens only.
//
//   atb::KvCache cache({.layers = 2, .heads = 4, .head_dim = 16, .max_tokens = 4096});
//   y = block({.x = prompt, .kv_cache = &cache});  // appends to the block's slot
//   y = block({.x = next, .kv_cache = &cache});    // sees both
#pragma once

#include <cstdint>
#include <memory>

#include "atb/array.h"
#include "atb/export.h"

namespace atb {

struct KvCacheOptions {
  int64_t layers = 1;                    // slots: attentions that may use it
  int64_t heads = 1;                     // of keys and values
  int64_t head_dim = 1;                  // features of each
  int64_t max_tokens = 1;                // the longest sequence
  ElementType type = ElementType::kF32;  // or kBF16
};

// A layer's slot is (cache, GraphOp): the first block that is called with a cache takes its first slot, the next one
// the second. A call appends its tokens at its slot's length; the first one fixes the batch until reset(). Memory is
// taken as tokens come. A call that throws leaves its block's slot as it was; truncate(length()) brings all to one
// length again. One call at a time: what would change the cache during another one throws kFailedPrecondition.
class ATB_API KvCache {
 public:
  // kInvalidArgument for options out of range, or another type than kF32 and kBF16.
  explicit KvCache(const KvCacheOptions& options);
  ~KvCache();
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;

  const KvCacheOptions& options() const;
  int64_t length() const;         // tokens that every slot in use holds
  int64_t batch() const;          // sequences; 0 before the first call
  int64_t blocks_in_use() const;  // blocks of memory; one that a fork has too counts in both
  int64_t shared_blocks() const;  // those of them that a fork has too

  // Every slot keeps its first `tokens` tokens at most. kInvalidArgument if negative or beyond the longest slot.
  void truncate(int64_t tokens);
  // Forgets all tokens, the batch, and which block has which slot.
  void reset();
  // A cache with the same tokens for the same blocks; memory is shared until one of the two writes to it.
  KvCache fork() const;

 private:
  friend class GraphOp;
  struct Impl;
  explicit KvCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;  // null once moved from
};

}  // namespace atb

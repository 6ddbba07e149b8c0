// SPDX-License-Identifier: Apache-2.0
// The block table of one sequence: grows before a step, commits after it, forks by sharing blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/kv/block_pool.h"

namespace atb {

// Positions [0, length()) are valid. A step is: ensure(length() + rows), run, commit(rows); a step that failed is
// simply not committed. Gives its blocks back on destruction. Not thread-safe (nor is the pool): the engine holds its
// lock. The pool must outlive it.
class KvSequence {
 public:
  explicit KvSequence(KvBlockPool& pool) : pool_(&pool) {}
  ~KvSequence() { release_from(0); }
  KvSequence(KvSequence&& other) noexcept;
  KvSequence& operator=(KvSequence&& other) noexcept;
  KvSequence(const KvSequence&) = delete;
  KvSequence& operator=(const KvSequence&) = delete;

  int64_t length() const { return length_; }
  int64_t capacity() const { return static_cast<int64_t>(ids_.size()) * pool_->layout().block_tokens; }
  const std::vector<int32_t>& block_ids() const { return ids_; }
  // Memory of each block, for SequenceStep::blocks. Valid until the next call that is not const.
  std::byte* const* blocks() const { return blocks_.data(); }

  // Makes positions [length(), tokens) writable: adds blocks, and copies a shared, partly filled last block. On failure
  // nothing has changed: kResourceExhausted with need, have, limit and the largest length that fits now.
  void ensure(int64_t tokens);
  // Positions [length(), length() + rows) have been written. kInternal beyond capacity().
  void commit(int64_t rows);
  // Drops positions from `tokens` on and the blocks that hold none; kInternal if tokens > length() or negative.
  void truncate(int64_t tokens);
  // A sequence with the same contents that shares all blocks; whoever writes into a shared block first copies it.
  KvSequence fork() const;

 private:
  void release_from(size_t index) noexcept;
  bool last_is_shared() const;  // the block that position length() falls into is partly filled and has other owners
  [[noreturn]] void fail(int64_t tokens, int64_t need) const;

  KvBlockPool* pool_;
  std::vector<int32_t> ids_;
  std::vector<std::byte*> blocks_;
  int64_t length_ = 0;
};

}  // namespace atb

// SPDX-License-Identifier: Apache-2.0
// Blocks of keys and values of one cache group: counted references, last freed first reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/kv_layout.h"
#include "core/memory.h"

namespace atb {

struct KvPoolStats {
  int64_t total = 0;   // blocks the pool may hand out
  int64_t in_use = 0;  // blocks with at least one owner
  int64_t peak = 0;    // largest in_use so far
  size_t block_bytes = 0;
  size_t reserved_bytes = 0;  // address space taken so far; physical memory only where blocks were used
  size_t resident_bytes = 0;  // bytes of blocks that have been used since they were last trimmed
};

// Owns the memory. A block's address never changes. Not thread-safe: the engine holds its lock.
class KvBlockPool {
 public:
  // kInvalidArgument for a layout that the kernels do not know (see KvLayout), or whose size overflows.
  KvBlockPool(const KvLayout& layout, int64_t max_blocks);
  KvBlockPool(const KvBlockPool&) = delete;
  KvBlockPool& operator=(const KvBlockPool&) = delete;

  const KvLayout& layout() const { return layout_; }
  int64_t total() const { return max_blocks_; }
  int64_t in_use() const { return in_use_; }
  int64_t available() const { return max_blocks_ - in_use_; }
  int64_t blocks_for(int64_t tokens) const {
    return tokens / layout_.block_tokens + (tokens % layout_.block_tokens != 0);
  }
  KvPoolStats stats() const;

  // A block with one owner, filled with zero: what an earlier owner left can reach nobody, not even as NaN times zero.
  // kResourceExhausted when all blocks are in use, or the system has no memory.
  int32_t allocate();
  // A block with one owner and the contents of `block`.
  int32_t allocate_copy(int32_t block);
  void retain(int32_t block);   // one owner more
  void release(int32_t block);  // one owner less; the last one frees it
  int32_t owners(int32_t block) const { return owners_[static_cast<size_t>(block)]; }
  std::byte* data(int32_t block) const;

  // Gives the physical memory of free blocks back to the system; returns the bytes given back.
  size_t trim();

 private:
  int32_t take();  // a block with one owner, contents as they are
  void add_slab();

  const KvLayout layout_;
  const int64_t max_blocks_;
  const size_t block_stride_;  // block_bytes rounded up to the alignment
  const int64_t blocks_per_slab_;
  std::vector<AlignedBuffer> slabs_;
  std::vector<int32_t> owners_;  // per block handed out at least once
  std::vector<bool> dirty_;      // may hold something else than zero
  std::vector<int32_t> free_;    // the last is reused first: its memory is resident and in cache
  int64_t in_use_ = 0;
  int64_t peak_ = 0;
};

// "123 bytes" or "4697620480 bytes (4.375 GiB)".
std::string format_bytes(size_t bytes);

// kResourceExhausted "[kv] ..." unless `pool_bytes` hold the blocks of one sequence of `tokens`: need, have, and the
// largest length that fits, in tokens and in whole blocks.
void require_kv_capacity(const KvLayout& layout, int64_t tokens, size_t pool_bytes);

}  // namespace atb

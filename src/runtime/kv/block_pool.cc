// SPDX-License-Identifier: Apache-2.0
// KV blocks in slabs of lazily touched memory.
#include "runtime/kv/block_pool.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>

#include "core/error.h"

namespace atb {
namespace {

constexpr size_t kSlabBytes = size_t{32} << 20;

// Bytes of one block, or kInvalidArgument; after this the layout's own size arithmetic cannot overflow.
size_t checked_block_bytes(const KvLayout& layout) {
  const auto bad = [](const char* field, int64_t value, const char* allowed) {
    throw_error(Code::kInvalidArgument, "[kv] ", field, " is ", value, ", allowed is ", allowed);
  };
  if (layout.dtype != DType::kF32 && layout.dtype != DType::kBF16) {
    throw_error(Code::kInvalidArgument, "[kv] dtype is ", dtype_name(layout.dtype), ", allowed are f32 and bf16");
  }
  if (layout.slots < 1) bad("slots", layout.slots, "1 or more");
  if (layout.kv_heads < 1) bad("kv_heads", layout.kv_heads, "1 or more");
  if (layout.head_dim < 1) bad("head_dim", layout.head_dim, "1 or more");
  if (layout.block_tokens < kKeyPanel || layout.block_tokens % kKeyPanel != 0 ||
      kAttentionPartition % layout.block_tokens != 0) {
    bad("block_tokens", layout.block_tokens, "a multiple of 16 that divides 128");
  }
  int64_t bytes = 2 * static_cast<int64_t>(dtype_size(layout.dtype)) * layout.block_tokens;
  for (const int64_t factor : {layout.slots, layout.kv_heads, layout.head_dim}) {
    require(!__builtin_mul_overflow(bytes, factor, &bytes) && bytes <= (int64_t{1} << 48), Code::kInvalidArgument,
            "[kv] one block of ", layout.block_tokens, " positions exceeds 2^48 bytes; check slots (", layout.slots,
            "), kv_heads (", layout.kv_heads, ") and head_dim (", layout.head_dim, ")");
  }
  return static_cast<size_t>(bytes);
}

}  // namespace

std::string format_bytes(size_t bytes) {
  char text[64];
  if (bytes < size_t{1} << 20) {
    std::snprintf(text, sizeof text, "%zu bytes", bytes);
  } else {
    const bool large = bytes >= size_t{1} << 30;
    const double unit = large ? static_cast<double>(1 << 30) : static_cast<double>(1 << 20);
    std::snprintf(text, sizeof text, "%zu bytes (%.3f %s)", bytes, static_cast<double>(bytes) / unit,
                  large ? "GiB" : "MiB");
  }
  return text;
}

KvBlockPool::KvBlockPool(const KvLayout& layout, int64_t max_blocks)
    : layout_(layout),
      max_blocks_(max_blocks),
      block_stride_(align_up(checked_block_bytes(layout), kMemoryAlignment)),
      blocks_per_slab_(std::max<int64_t>(1, static_cast<int64_t>(kSlabBytes / block_stride_))) {
  const int64_t limit =
      std::min<int64_t>(std::numeric_limits<int32_t>::max(), (int64_t{1} << 50) / static_cast<int64_t>(block_stride_));
  require(max_blocks >= 1 && max_blocks <= limit, Code::kInvalidArgument, "[kv] the number of blocks is ", max_blocks,
          ", allowed are 1 to ", limit, " blocks of ", block_stride_, " bytes");
}

KvPoolStats KvBlockPool::stats() const {
  KvPoolStats stats;
  stats.total = max_blocks_;
  stats.in_use = in_use_;
  stats.peak = peak_;
  stats.block_bytes = layout_.block_bytes();
  for (const AlignedBuffer& slab : slabs_) stats.reserved_bytes += slab.size();
  stats.resident_bytes = block_stride_ * static_cast<size_t>(std::count(dirty_.begin(), dirty_.end(), true));
  return stats;
}

std::byte* KvBlockPool::data(int32_t block) const {
  ATB_DCHECK(block >= 0 && static_cast<size_t>(block) < owners_.size());
  return slabs_[static_cast<size_t>(block / blocks_per_slab_)].data() +
         static_cast<size_t>(block % blocks_per_slab_) * block_stride_;
}

void KvBlockPool::add_slab() {
  const int64_t have = static_cast<int64_t>(slabs_.size()) * blocks_per_slab_;
  const int64_t count = std::min(blocks_per_slab_, max_blocks_ - have);
  slabs_.emplace_back(static_cast<size_t>(count) * block_stride_, "kv");
}

int32_t KvBlockPool::take() {
  require(available() > 0, Code::kResourceExhausted, "[kv] need 1 block of ", format_bytes(layout_.block_bytes()),
          ", have 0 free of ", max_blocks_, "; wait for a running request, or give the pool more memory");
  int32_t block;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else {
    block = static_cast<int32_t>(owners_.size());
    if (block == static_cast<int64_t>(slabs_.size()) * blocks_per_slab_) add_slab();
    free_.reserve(owners_.size() + 1);  // so that release() never allocates
    dirty_.push_back(false);
    owners_.push_back(0);
  }
  owners_[static_cast<size_t>(block)] = 1;
  peak_ = std::max(peak_, ++in_use_);
  return block;
}

int32_t KvBlockPool::allocate() {
  const int32_t block = take();
  if (dirty_[static_cast<size_t>(block)]) std::memset(data(block), 0, block_stride_);
  dirty_[static_cast<size_t>(block)] = true;
  return block;
}

int32_t KvBlockPool::allocate_copy(int32_t block) {
  const int32_t copy = take();
  std::memcpy(data(copy), data(block), block_stride_);
  dirty_[static_cast<size_t>(copy)] = true;
  return copy;
}

void KvBlockPool::retain(int32_t block) {
  ATB_DCHECK(owners(block) > 0);
  ++owners_[static_cast<size_t>(block)];
}

void KvBlockPool::release(int32_t block) {
  ATB_DCHECK(owners(block) > 0);
  if (--owners_[static_cast<size_t>(block)] > 0) return;
  free_.push_back(block);
  --in_use_;
}

size_t KvBlockPool::trim() {
  size_t bytes = 0;
  for (const int32_t block : free_) {
    if (!dirty_[static_cast<size_t>(block)]) continue;
    std::byte* begin = data(block);
    const size_t given = discard_pages(begin, block_stride_);
    if (given == 0) continue;
    // What shares a page with a neighbour stays and is cleared by hand, so that the block is zero as a whole.
    const size_t page_part = block_stride_ - given;
    if (page_part > 0) std::memset(begin, 0, std::min(page_part, block_stride_));
    if (page_part > 0) std::memset(begin + block_stride_ - page_part, 0, page_part);
    dirty_[static_cast<size_t>(block)] = false;
    bytes += given;
  }
  return bytes;
}

void require_kv_capacity(const KvLayout& layout, int64_t tokens, size_t pool_bytes) {
  const size_t block_bytes = checked_block_bytes(layout);
  require(tokens >= 0, Code::kInvalidArgument, "[kv] the length is ", tokens, ", allowed is 0 or more");
  const size_t blocks = static_cast<size_t>(tokens / layout.block_tokens + (tokens % layout.block_tokens != 0));
  const size_t have_blocks = pool_bytes / block_bytes;
  if (blocks <= have_blocks) return;
  size_t need = 0;
  const std::string need_text = __builtin_mul_overflow(static_cast<size_t>(tokens), layout.token_bytes(), &need)
                                    ? "more than 2^64 bytes"
                                    : format_bytes(need);
  throw_error(Code::kResourceExhausted, "[kv] a sequence of ", tokens, " tokens needs ", need_text, ", have ",
              format_bytes(pool_bytes), "; the largest length that fits is ", pool_bytes / layout.token_bytes(),
              " tokens (", have_blocks * static_cast<size_t>(layout.block_tokens), " in blocks of ",
              layout.block_tokens, "); give the cache more memory or use a shorter context");
}

}  // namespace atb

// SPDX-License-Identifier: Apache-2.0
// Block tables with copy on write of the last partial block.
#include "runtime/kv/sequence.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace atb {

KvSequence::KvSequence(KvSequence&& other) noexcept
    : pool_(other.pool_),
      ids_(std::exchange(other.ids_, {})),
      blocks_(std::exchange(other.blocks_, {})),
      length_(std::exchange(other.length_, 0)) {}

KvSequence& KvSequence::operator=(KvSequence&& other) noexcept {
  if (this != &other) {
    release_from(0);
    pool_ = other.pool_;
    ids_ = std::exchange(other.ids_, {});
    blocks_ = std::exchange(other.blocks_, {});
    length_ = std::exchange(other.length_, 0);
  }
  return *this;
}

void KvSequence::release_from(size_t index) noexcept {
  // Last block first: the pool hands the blocks out again in the old order.
  while (ids_.size() > index) {
    pool_->release(ids_.back());
    ids_.pop_back();
    blocks_.pop_back();
  }
}

bool KvSequence::last_is_shared() const {
  const int64_t block_tokens = pool_->layout().block_tokens;
  return length_ % block_tokens != 0 && pool_->owners(ids_[static_cast<size_t>(length_ / block_tokens)]) > 1;
}

void KvSequence::ensure(int64_t tokens) {
  if (tokens <= length_) return;
  const bool copy = last_is_shared();
  const int64_t missing = std::max<int64_t>(0, pool_->blocks_for(tokens) - static_cast<int64_t>(ids_.size()));
  if (missing + (copy ? 1 : 0) > pool_->available()) fail(tokens, missing + (copy ? 1 : 0));
  const size_t old_count = ids_.size();
  ids_.reserve(old_count + static_cast<size_t>(missing));
  blocks_.reserve(old_count + static_cast<size_t>(missing));
  try {
    for (int64_t i = 0; i < missing; ++i) {
      ids_.push_back(pool_->allocate());
      blocks_.push_back(pool_->data(ids_.back()));
    }
    if (copy) {
      const size_t last = static_cast<size_t>(length_ / pool_->layout().block_tokens);
      const int32_t own = pool_->allocate_copy(ids_[last]);
      pool_->release(std::exchange(ids_[last], own));
      blocks_[last] = pool_->data(own);
    }
  } catch (...) {
    release_from(old_count);  // the system had no memory for a slab
    throw;
  }
}

void KvSequence::commit(int64_t rows) {
  require(rows >= 0 && rows <= capacity() - length_, Code::kInternal, "[kv] commit of ", rows, " rows after ", length_,
          " exceeds the capacity of ", capacity());
  length_ += rows;
}

void KvSequence::truncate(int64_t tokens) {
  require(tokens >= 0 && tokens <= length_, Code::kInternal, "[kv] truncate to ", tokens, " of ", length_, " tokens");
  release_from(static_cast<size_t>(pool_->blocks_for(tokens)));
  length_ = tokens;
}

KvSequence KvSequence::fork() const {
  KvSequence copy(*pool_);
  const auto count = static_cast<std::ptrdiff_t>(pool_->blocks_for(length_));  // not what is reserved beyond the length
  copy.ids_.assign(ids_.begin(), ids_.begin() + count);
  copy.blocks_.assign(blocks_.begin(), blocks_.begin() + count);
  for (const int32_t block : copy.ids_) pool_->retain(block);
  copy.length_ = length_;
  return copy;
}

void KvSequence::fail(int64_t tokens, int64_t need) const {
  const KvLayout& layout = pool_->layout();
  const auto bytes = [&](int64_t blocks) { return format_bytes(static_cast<size_t>(blocks) * layout.block_bytes()); };
  // One free block goes to the copy of a shared last block before any can lengthen the sequence.
  const int64_t spare = pool_->available() - (last_is_shared() ? 1 : 0);
  const int64_t fits = spare < 0 ? length_ : (static_cast<int64_t>(ids_.size()) + spare) * layout.block_tokens;
  const bool never = pool_->blocks_for(tokens) > pool_->total();
  throw_error(Code::kResourceExhausted, "[kv] a sequence of ", tokens, " tokens needs ", need, " more blocks of ",
              layout.block_tokens, " tokens, ", bytes(need), ", have ", pool_->available(), " free, ",
              bytes(pool_->available()), ", limit ", pool_->total(), ", ", bytes(pool_->total()),
              "; the largest length that fits now is ", fits, " tokens; ",
              never ? "use a shorter context or give the cache more memory"
                    : "wait for running requests to end or give the cache more memory");
}

}  // namespace atb

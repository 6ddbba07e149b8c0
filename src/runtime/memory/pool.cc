// SPDX-License-Identifier: Apache-2.0
// Memory pool: each chunk is a list of pieces in address order; freeing joins neighbours.
#include "runtime/memory/pool.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "core/error.h"

namespace atb {
namespace {

constexpr size_t kFirstChunk = size_t{1} << 20;

}  // namespace

// A stretch of a chunk, free or one region. Its address in the list is stable, so a region points at it.
struct MemoryRegion::Piece {
  MemoryPool::Chunk* chunk;
  size_t offset;
  size_t bytes;  // multiple of kMemoryAlignment
  size_t asked;  // what the region's owner asked for
  bool used;
  bool movable;
  std::list<Piece>::iterator self;
};

struct MemoryPool::Chunk {
  AlignedBuffer memory;
  std::list<MemoryRegion::Piece> pieces;  // cover the chunk without gaps; no two free ones are neighbours

  bool unused() const { return pieces.size() == 1 && !pieces.front().used; }
};

MemoryRegion& MemoryRegion::operator=(MemoryRegion&& other) noexcept {
  if (this != &other) {
    reset();
    pool_ = std::exchange(other.pool_, nullptr);
    piece_ = std::exchange(other.piece_, nullptr);
  }
  return *this;
}

std::byte* MemoryRegion::data() const {
  return piece_ == nullptr ? nullptr : piece_->chunk->memory.data() + piece_->offset;
}

size_t MemoryRegion::size() const { return piece_ == nullptr ? 0 : piece_->asked; }

void MemoryRegion::reset() {
  if (piece_ != nullptr) pool_->free(piece_);
  pool_ = nullptr;
  piece_ = nullptr;
}

MemoryPool::MemoryPool(const MemoryPoolConfig& config) : config_(config), next_chunk_(kFirstChunk) {
  require(std::isfinite(config.growth_factor) && config.growth_factor >= 1, Code::kInvalidArgument,
          "[memory] growth_factor is ", config.growth_factor, ", allowed are finite numbers from 1");
}

MemoryPool::~MemoryPool() = default;

MemoryRegion MemoryPool::allocate(size_t bytes, bool movable) {
  if (bytes == 0) return {};
  const std::lock_guard lock(mutex_);
  if (bytes > std::numeric_limits<size_t>::max() / 4) fail(bytes);
  const size_t need = align_up(bytes, kMemoryAlignment);
  MemoryRegion::Piece* best = nullptr;
  for (const auto& chunk : chunks_) {
    for (auto& piece : chunk->pieces) {
      if (!piece.used && piece.bytes >= need && (best == nullptr || piece.bytes < best->bytes)) best = &piece;
    }
  }
  if (best == nullptr) best = &grow(need)->pieces.front();
  if (best->bytes > need) {
    auto& pieces = best->chunk->pieces;
    const auto rest = pieces.insert(std::next(best->self),
                                    {best->chunk, best->offset + need, best->bytes - need, 0, false, false, {}});
    rest->self = rest;
    best->bytes = need;
  }
  best->asked = bytes;
  best->used = true;
  best->movable = movable;
  in_use_ += need;
  peak_ = std::max(peak_, in_use_);
  return {this, best};
}

// A new chunk of at least `need` bytes. Chunks nobody uses are given back first where the limit would be passed.
MemoryPool::Chunk* MemoryPool::grow(size_t need) {
  const size_t limit = config_.max_size == 0 ? std::numeric_limits<size_t>::max() : config_.max_size;
  if (need > limit || reserved_ > limit - need) trim_locked();
  if (need > limit || reserved_ > limit - need) fail(need);
  const size_t room = (limit - reserved_) / kMemoryAlignment * kMemoryAlignment;
  const size_t wanted = std::max(need, std::min(next_chunk_, room));
  auto chunk = std::make_unique<Chunk>();
  chunk->memory = AlignedBuffer(wanted, "memory");
  chunk->pieces.push_back({chunk.get(), 0, wanted, 0, false, false, {}});
  chunk->pieces.front().self = chunk->pieces.begin();
  reserved_ += wanted;
  // Beyond what memory there is the next chunk is only as large as asked for.
  next_chunk_ = static_cast<size_t>(std::min(static_cast<double>(wanted) * config_.growth_factor, 1e15));
  next_chunk_ = align_up(next_chunk_, kMemoryAlignment);
  chunks_.push_back(std::move(chunk));
  return chunks_.back().get();
}

void MemoryPool::free(MemoryRegion::Piece* piece) {
  const std::lock_guard lock(mutex_);
  in_use_ -= piece->bytes;
  piece->used = false;
  auto& pieces = piece->chunk->pieces;
  const auto join = [&](std::list<MemoryRegion::Piece>::iterator left, std::list<MemoryRegion::Piece>::iterator right) {
    left->bytes += right->bytes;
    pieces.erase(right);
  };
  auto self = piece->self;
  if (const auto next = std::next(self); next != pieces.end() && !next->used) join(self, next);
  if (self != pieces.begin()) {
    if (const auto previous = std::prev(self); !previous->used) join(previous, self);
  }
}

size_t MemoryPool::defragment() {
  const std::lock_guard lock(mutex_);
  if (!config_.enable_defrag) return 0;
  size_t moved = 0;
  for (const auto& chunk : chunks_) {
    auto& pieces = chunk->pieces;
    for (auto hole = pieces.begin(); hole != pieces.end();) {
      const auto next = std::next(hole);
      if (hole->used || next == pieces.end() || !next->movable || !next->used) {
        hole = next;
        continue;
      }
      // Swap the hole with the movable region behind it, then join the hole with a hole behind it.
      std::byte* base = chunk->memory.data();
      std::memmove(base + hole->offset, base + next->offset, next->asked);
      moved += next->asked;
      next->offset = hole->offset;
      hole->offset = next->offset + next->bytes;
      pieces.splice(hole, pieces, next);
      if (const auto after = std::next(hole); after != pieces.end() && !after->used) {
        hole->bytes += after->bytes;
        pieces.erase(after);
      }
    }
  }
  trim_locked();
  return moved;
}

size_t MemoryPool::trim() {
  const std::lock_guard lock(mutex_);
  return trim_locked();
}

size_t MemoryPool::trim_locked() {
  const size_t before = reserved_;
  std::erase_if(chunks_, [&](const std::unique_ptr<Chunk>& chunk) {
    if (!chunk->unused()) return false;
    reserved_ -= chunk->memory.size();
    return true;
  });
  if (chunks_.empty()) next_chunk_ = kFirstChunk;
  return before - reserved_;
}

size_t MemoryPool::largest_free_locked() const {
  size_t largest = 0;
  for (const auto& chunk : chunks_) {
    for (const auto& piece : chunk->pieces) {
      if (!piece.used) largest = std::max(largest, piece.bytes);
    }
  }
  return largest;
}

MemoryPoolStats MemoryPool::stats() const {
  const std::lock_guard lock(mutex_);
  MemoryPoolStats stats{config_.max_size, reserved_, in_use_, peak_, largest_free_locked(), 0};
  const size_t free_bytes = reserved_ - in_use_;
  if (free_bytes > 0) {
    stats.fragmentation = 1 - static_cast<double>(stats.largest_free) / static_cast<double>(free_bytes);
  }
  return stats;
}

// After trim_locked() in grow(), so what is reserved is in use at least in part.
void MemoryPool::fail(size_t need) const {
  const size_t unreserved = config_.max_size > reserved_ ? config_.max_size - reserved_ : 0;
  const size_t fits = std::max(largest_free_locked(), unreserved / kMemoryAlignment * kMemoryAlignment);
  const std::string limit = config_.max_size == 0 ? "none" : std::to_string(config_.max_size) + " bytes";
  throw_error(Code::kResourceExhausted, "[memory] need ", need, " bytes, have ", reserved_ - in_use_ + unreserved,
              " free (limit ", limit, ", in use ", in_use_, "); the largest region that fits now is ", fits,
              " bytes; raise max_size, or use shorter prompts or smaller chunks");
}

}  // namespace atb

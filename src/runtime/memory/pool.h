// SPDX-License-Identifier: Apache-2.0
// The pool that plan arenas and workspaces come from: grows geometrically to a limit, gives back, can defragment.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/memory.h"

namespace atb {

struct MemoryPoolConfig {
  size_t max_size = 0;         // bytes the pool may reserve; 0: no limit but the machine's
  double growth_factor = 2.0;  // a new chunk is this many times the last one, at least what is asked for; >= 1
  bool enable_defrag = false;  // whether defragment() moves regions
};

struct MemoryPoolStats {
  size_t limit = 0;         // max_size
  size_t reserved = 0;      // bytes taken from the system
  size_t in_use = 0;        // bytes in regions, rounded up to 64 each
  size_t peak = 0;          // largest in_use so far
  size_t largest_free = 0;  // the largest free piece inside what is reserved
  // Share of the free bytes that the largest free piece does not hold: 0 in one piece, towards 1 in many.
  double fragmentation = 0;
};

class MemoryPool;

// Memory of a pool, 64-byte aligned, contents undefined; move-only, goes back on destruction. Must not outlive the
// pool.
class MemoryRegion {
 public:
  MemoryRegion() = default;
  ~MemoryRegion() { reset(); }
  MemoryRegion(MemoryRegion&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), piece_(std::exchange(other.piece_, nullptr)) {}
  MemoryRegion& operator=(MemoryRegion&& other) noexcept;

  std::byte* data() const;  // of a movable region: valid until the next defragment(); null when empty
  size_t size() const;
  void reset();

 private:
  friend class MemoryPool;
  struct Piece;
  MemoryRegion(MemoryPool* pool, Piece* piece) : pool_(pool), piece_(piece) {}
  MemoryPool* pool_ = nullptr;
  Piece* piece_ = nullptr;
};

// Thread-safe. Regions are cut best-fit from chunks.
class MemoryPool {
 public:
  // kInvalidArgument for a growth factor that is below 1 or not finite.
  explicit MemoryPool(const MemoryPoolConfig& config = {});
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // kResourceExhausted with need, have, limit and the largest region that would fit now. `movable`: defragment() may
  // move it. 0 bytes give an empty region.
  MemoryRegion allocate(size_t bytes, bool movable = false);
  // Slides movable regions to the front of their chunks, then trims. Only while nobody uses movable regions (between
  // steps). Returns the bytes moved; nothing happens unless enable_defrag.
  size_t defragment();
  // Gives chunks without regions back to the system; returns their bytes.
  size_t trim();
  MemoryPoolStats stats() const;

 private:
  friend class MemoryRegion;
  struct Chunk;
  void free(MemoryRegion::Piece* piece);
  Chunk* grow(size_t need);
  size_t largest_free_locked() const;
  size_t trim_locked();
  [[noreturn]] void fail(size_t need) const;

  const MemoryPoolConfig config_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  size_t reserved_ = 0;
  size_t in_use_ = 0;
  size_t peak_ = 0;
  size_t next_chunk_ = 0;  // bytes of the next chunk, before the limit and the need
};

}  // namespace atb

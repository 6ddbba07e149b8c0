// SPDX-License-Identifier: Apache-2.0
#include "api/kv_slots.h"

#include <unistd.h>

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace atb {
namespace {

// Wide enough for any model, narrow enough that sizes of blocks cannot overflow.
constexpr int64_t kMostSlots = int64_t{1} << 16;
constexpr int64_t kMostExtent = int64_t{1} << 16;
constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();  // positions are i32

void require_range(const char* what, int64_t value, int64_t most) {
  require(value >= 1 && value <= most, Code::kInvalidArgument, "[kv] ", what, " is ", value, ", allowed are 1 to ",
          most);
}

KvLayout layout_of(const KvSlotsOptions& options) {
  require_range("the number of layers", options.slots, kMostSlots);
  require_range("the number of heads", options.kv_heads, kMostExtent);
  require_range("head_dim", options.head_dim, kMostExtent);
  require_range("max_tokens", options.max_tokens, kMostTokens);
  return {.dtype = options.dtype, .slots = 1, .kv_heads = options.kv_heads, .head_dim = options.head_dim};
}

// max_tokens limits a sequence, not the pool: forks take from it too, and memory is only taken as it is used.
int64_t most_blocks(const KvLayout& layout) {
  const size_t stride = align_up(std::max<size_t>(layout.block_bytes(), 1), kMemoryAlignment);
  return std::min<int64_t>(std::numeric_limits<int32_t>::max(), (int64_t{1} << 50) / static_cast<int64_t>(stride));
}

}  // namespace

struct KvSlots::Pool {
  explicit Pool(const KvLayout& layout) : blocks(layout, most_blocks(layout)) {}
  const pid_t process = getpid();
  std::mutex mutex;
  KvBlockPool blocks;
};

KvSlots::KvSlots(const KvSlotsOptions& options) : KvSlots(options, std::make_shared<Pool>(layout_of(options))) {}

KvSlots::KvSlots(const KvSlotsOptions& options, std::shared_ptr<Pool> pool)
    : options_(options), pool_(std::move(pool)), sequences_(static_cast<size_t>(options.slots)) {}

// Blocks go back to a pool that forks may be using.
KvSlots::~KvSlots() {
  const Lock held(pool_->mutex);
  sequences_.clear();
}

// A forked process may have copied the lock while it was held.
KvSlots::Lock KvSlots::lock() const {
  require(pool_->process == getpid(), Code::kFailedPrecondition,
          "[kv] a cache cannot be used in a forked child process; make one there");
  return Lock(pool_->mutex);
}

KvSlots::Lock KvSlots::lock_to_change(const char* what) const {
  Lock held = lock();
  require(!stepping_, Code::kFailedPrecondition, "[kv] ", what,
          " while a call appends to the cache; wait for it to end, or give each caller a cache of its own (fork)");
  return held;
}

const KvLayout& KvSlots::layout() const { return pool_->blocks.layout(); }

int64_t KvSlots::batch() const {
  const Lock held = lock();
  return batch_;
}

int64_t KvSlots::length_of(int64_t slot) const {
  const std::vector<KvSequence>& sequences = sequences_[static_cast<size_t>(slot)];
  return sequences.empty() ? 0 : sequences[0].length();
}

int64_t KvSlots::longest_of() const {
  int64_t longest = 0;
  for (int64_t slot = 0; slot < options_.slots; ++slot) longest = std::max(longest, length_of(slot));
  return longest;
}

int64_t KvSlots::length(int64_t slot) const {
  require(slot >= 0 && slot < options_.slots, Code::kInvalidArgument, "[kv] slot ", slot, " of a cache of ",
          options_.slots, " layers");
  const Lock held = lock();
  return length_of(slot);
}

int64_t KvSlots::longest() const {
  const Lock held = lock();
  return longest_of();
}

int64_t KvSlots::blocks_in_use() const {
  const Lock held = lock();
  size_t count = 0;
  for (const auto& slot : sequences_) {
    for (const KvSequence& sequence : slot) count += sequence.block_ids().size();
  }
  return static_cast<int64_t>(count);
}

int64_t KvSlots::shared_blocks() const {
  const Lock held = lock();
  int64_t count = 0;
  for (const auto& slot : sequences_) {
    for (const KvSequence& sequence : slot) {
      for (const int32_t block : sequence.block_ids()) count += pool_->blocks.owners(block) > 1 ? 1 : 0;
    }
  }
  return count;
}

int64_t KvSlots::pool_blocks_in_use() const {
  const Lock held = lock();
  return pool_->blocks.in_use();
}

void KvSlots::truncate(int64_t tokens) {
  const Lock held = lock_to_change("truncate()");
  require(tokens >= 0 && tokens <= longest_of(), Code::kInvalidArgument, "[kv] truncate to ", tokens,
          " tokens: the cache holds ", longest_of());
  for (auto& slot : sequences_) {
    for (KvSequence& sequence : slot) sequence.truncate(std::min(tokens, sequence.length()));
  }
}

void KvSlots::reset() {
  const Lock held = lock_to_change("reset()");
  for (auto& slot : sequences_) slot.clear();
  batch_ = 0;
}

std::unique_ptr<KvSlots> KvSlots::fork() const {
  const Lock held = lock_to_change("fork()");
  std::unique_ptr<KvSlots> copy(new KvSlots(options_, pool_));
  copy->batch_ = batch_;
  for (size_t slot = 0; slot < sequences_.size(); ++slot) {
    for (const KvSequence& sequence : sequences_[slot]) copy->sequences_[slot].push_back(sequence.fork());
  }
  return copy;
}

void KvSlots::check_step(std::span<const int64_t> slots, int64_t batch, int64_t tokens) const {
  require(batch >= 1 && tokens >= 0, Code::kInvalidArgument, "[kv] a call with ", batch, " sequences of ", tokens,
          " tokens; it needs at least 1 sequence");
  require(batch_ == 0 || batch == batch_, Code::kInvalidArgument, "[kv] the cache holds ", batch_,
          " sequences, the call has ", batch, "; reset() the cache before another batch size");
  for (size_t i = 0; i < slots.size(); ++i) {
    require(slots[i] >= 0 && slots[i] < options_.slots, Code::kInvalidArgument, "[kv] slot ", slots[i],
            " of a cache of ", options_.slots, " layers");
    require(std::count(slots.begin(), slots.end(), slots[i]) == 1, Code::kInvalidArgument, "[kv] slot ", slots[i],
            " is given twice; each attention of a graph has its own");
    const int64_t room = options_.max_tokens - length_of(slots[i]);
    require(tokens <= room, Code::kResourceExhausted, "[kv] layer ", slots[i], " of the cache holds ",
            length_of(slots[i]), " tokens, the call adds ", tokens, ", max_tokens is ", options_.max_tokens,
            "; truncate() or reset() the cache, or make it larger");
  }
}

void KvSlots::grow(std::span<const int64_t> slots, int64_t batch, int64_t tokens) {
  for (const int64_t slot : slots) {
    std::vector<KvSequence>& sequences = sequences_[static_cast<size_t>(slot)];
    while (static_cast<int64_t>(sequences.size()) < batch) sequences.emplace_back(pool_->blocks);
    for (KvSequence& sequence : sequences) sequence.ensure(sequence.length() + tokens);
  }
}

// Blocks beyond the lengths go back. What was written into a last block beyond a length is read by nobody: a row of
// attention adds up exactly its own keys.
void KvSlots::give_up(std::span<const int64_t> slots, bool first) noexcept {
  for (const int64_t slot : slots) {
    std::vector<KvSequence>& sequences = sequences_[static_cast<size_t>(slot)];
    for (KvSequence& sequence : sequences) sequence.truncate(sequence.length());
    if (first) sequences.clear();
  }
  if (first) batch_ = 0;
}

KvSlots::Step::Step(KvSlots& cache, std::span<const int64_t> slots, int64_t batch, int64_t tokens)
    : cache_(cache), slots_(slots.begin(), slots.end()), tokens_(tokens) {
  const Lock held = cache_.lock_to_change("a second call");
  cache_.check_step(slots_, batch, tokens);
  first_ = cache_.batch_ == 0;
  try {
    cache_.grow(slots_, batch, tokens);
    for (const int64_t slot : slots_) {
      int64_t row = 0;
      for (const KvSequence& sequence : cache_.sequences_[static_cast<size_t>(slot)]) {
        sequences_.push_back({row, tokens, sequence.length(), sequence.blocks()});
        row += tokens;
      }
    }
  } catch (...) {
    cache_.give_up(slots_, first_);
    throw;
  }
  cache_.batch_ = batch;
  cache_.stepping_ = true;
}

KvSlots::Step::~Step() {
  const Lock held(cache_.pool_->mutex);
  if (!committed_) cache_.give_up(slots_, first_);
  cache_.stepping_ = false;
}

void KvSlots::Step::commit() {
  const Lock held(cache_.pool_->mutex);
  for (const int64_t slot : slots_) {
    for (KvSequence& sequence : cache_.sequences_[static_cast<size_t>(slot)]) sequence.commit(tokens_);
  }
  committed_ = true;
}

}  // namespace atb

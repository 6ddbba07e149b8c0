// SPDX-License-Identifier: Apache-2.0
// The KV cache of graphs on [B, T, ...]: keys and values of each slot (layer), and how many tokens each holds.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "runtime/kv/block_pool.h"
#include "runtime/kv/sequence.h"

namespace atb {

struct KvSlotsOptions {
  int64_t slots = 1;  // layers
  int64_t kv_heads = 1;
  int64_t head_dim = 1;
  int64_t max_tokens = 1;  // of a sequence
  DType dtype = DType::kF32;
};

// A model calls its layers one after another, so slots have lengths of their own: each slot has a block table a
// sequence, over blocks of one slot, all from one pool that forks share. Memory is taken as tokens come.
//
// The batch (number of sequences) is fixed by the first step until reset(). Safe to call from several threads; while a
// step is in progress whatever would change the cache throws kFailedPrecondition.
class KvSlots {
 public:
  // kInvalidArgument for options out of range, or a dtype other than f32 and bf16.
  explicit KvSlots(const KvSlotsOptions& options);
  ~KvSlots();
  KvSlots(const KvSlots&) = delete;
  KvSlots& operator=(const KvSlots&) = delete;

  const KvSlotsOptions& options() const { return options_; }
  const KvLayout& layout() const;      // of one slot
  int64_t batch() const;               // 0 before the first step
  int64_t length(int64_t slot) const;  // tokens of each sequence; kInvalidArgument beyond the slots
  int64_t longest() const;             // the largest length of a slot
  int64_t blocks_in_use() const;       // of this cache; one that a fork has too counts in both
  int64_t shared_blocks() const;       // those of them that a fork has too
  int64_t pool_blocks_in_use() const;  // of this cache and its forks together, each block once

  // Slots keep at most their first `tokens` tokens. kInvalidArgument if negative or beyond the longest slot.
  void truncate(int64_t tokens);
  // All slots are empty, blocks go back, and the next step may have another batch.
  void reset();
  // A cache with the same contents. Blocks are shared until one of the two writes to them.
  std::unique_ptr<KvSlots> fork() const;

  // Appending `tokens` tokens to each of `batch` sequences in each of `slots`. From construction on there is room for
  // them; without a commit every slot stays as it was. One at a time; the cache must outlive it.
  class Step {
   public:
    // Changes nothing and throws: kInvalidArgument where a slot does not exist or is named twice, or the batch is
    // another; kResourceExhausted beyond max_tokens or where memory runs out; kFailedPrecondition during another step.
    Step(KvSlots& cache, std::span<const int64_t> slots, int64_t batch, int64_t tokens);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

    // As Executor::run takes them: the sequences of the first slot, then those of the next.
    std::span<const SequenceStep> sequences() const { return sequences_; }
    void commit();

   private:
    KvSlots& cache_;
    const std::vector<int64_t> slots_;
    const int64_t tokens_;
    bool first_ = false;  // of this cache: it fixes the batch
    std::vector<SequenceStep> sequences_;
    bool committed_ = false;
  };

 private:
  struct Pool;
  using Lock = std::unique_lock<std::mutex>;

  KvSlots(const KvSlotsOptions& options, std::shared_ptr<Pool> pool);
  Lock lock() const;
  Lock lock_to_change(const char* what) const;
  int64_t length_of(int64_t slot) const;
  int64_t longest_of() const;
  void check_step(std::span<const int64_t> slots, int64_t batch, int64_t tokens) const;
  void grow(std::span<const int64_t> slots, int64_t batch, int64_t tokens);
  void give_up(std::span<const int64_t> slots, bool first) noexcept;

  const KvSlotsOptions options_;
  std::shared_ptr<Pool> pool_;                      // guards the sequences too; outlives them
  std::vector<std::vector<KvSequence>> sequences_;  // by slot; none before its first step
  int64_t batch_ = 0;
  bool stepping_ = false;
};

}  // namespace atb

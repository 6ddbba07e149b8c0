// SPDX-License-Identifier: Apache-2.0
// Block tables against a model that keeps every sequence's tokens in a plain vector: bytes of the input are operations.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "fuzz/target.h"
#include "runtime/kv/block_pool.h"
#include "runtime/kv/sequence.h"

namespace atb::fuzz {
namespace {

constexpr int64_t kBlocks = 12;
constexpr int64_t kBlockTokens = 16;
constexpr size_t kSequences = 4;
constexpr size_t kMaxOperations = 512;

// One f32 per token in V of the only slot and head: a token's number can be written and read back.
KvLayout layout() {
  return {.dtype = DType::kF32, .slots = 1, .kv_heads = 1, .head_dim = 1, .block_tokens = kBlockTokens};
}

class Tables {
 public:
  Tables() : pool_(layout(), kBlocks) {
    for (size_t i = 0; i < kSequences; ++i) sequences_.emplace_back(pool_);
    tokens_.resize(kSequences);
  }

  void step(uint8_t operation, uint8_t argument) {
    const size_t which = argument % kSequences;
    const auto amount = static_cast<int64_t>(argument / kSequences);
    switch (operation % 7) {
      case 0:
        return append(which, amount);
      case 1:
        return fork(which, static_cast<size_t>(amount) % kSequences);
      case 2:
        return truncate(which, amount);
      case 3:
        return reserve(which, amount);
      case 4:
        sequences_[which] = KvSequence(pool_);
        tokens_[which].clear();
        return;
      case 5:
        return move(which, static_cast<size_t>(amount) % kSequences);
      default:
        pool_.trim();
    }
  }

  void check() const {
    std::map<int32_t, int32_t> owners;
    for (size_t i = 0; i < kSequences; ++i) {
      const KvSequence& sequence = sequences_[i];
      expect(sequence.length() == static_cast<int64_t>(tokens_[i].size()), "another length");
      expect(sequence.capacity() >= sequence.length(), "less capacity than length");
      const std::set<int32_t> distinct(sequence.block_ids().begin(), sequence.block_ids().end());
      expect(distinct.size() == sequence.block_ids().size(), "a block twice in one table");
      for (const int32_t block : sequence.block_ids()) ++owners[block];
      for (size_t at = 0; at < tokens_[i].size(); ++at) expect(*cell(sequence, at) == tokens_[i][at], "another token");
    }
    for (const auto& [block, count] : owners) expect(pool_.owners(block) == count, "another number of owners");
    expect(pool_.in_use() == static_cast<int64_t>(owners.size()), "blocks without an owner");
    expect(pool_.available() == kBlocks - pool_.in_use(), "another number of free blocks");
    expect(pool_.stats().peak >= pool_.in_use() && pool_.stats().peak <= kBlocks, "a wrong peak");
  }

 private:
  float* cell(const KvSequence& sequence, size_t token) const {
    std::byte* block = sequence.blocks()[token / kBlockTokens];
    return reinterpret_cast<float*>(block + layout().v_row(0, static_cast<int64_t>(token % kBlockTokens)));
  }

  // A step: ensure, write, commit. A refusal must leave everything as it was, which check() sees.
  void append(size_t which, int64_t count) {
    KvSequence& sequence = sequences_[which];
    const int64_t end = sequence.length() + count;
    if (!ensure(sequence, end)) return;
    while (static_cast<int64_t>(tokens_[which].size()) < end) {
      *cell(sequence, tokens_[which].size()) = ++next_;
      tokens_[which].push_back(next_);
    }
    sequence.commit(count);
  }

  // A step that failed after it wrote: what it wrote beyond the length must reach nobody.
  void reserve(size_t which, int64_t count) {
    KvSequence& sequence = sequences_[which];
    const int64_t end = sequence.length() + count;
    if (!ensure(sequence, end)) return;
    for (int64_t at = sequence.length(); at < end; ++at) *cell(sequence, static_cast<size_t>(at)) = -1.0f;
  }

  bool ensure(KvSequence& sequence, int64_t tokens) {
    const auto own = static_cast<int64_t>(sequence.block_ids().size());
    const int64_t missing = std::max<int64_t>(0, pool_.blocks_for(tokens) - own);
    if (accepts([&] { sequence.ensure(tokens); })) {
      expect(sequence.capacity() >= tokens, "ensure gave less than asked for");
      return true;
    }
    expect(missing + 1 > pool_.available(), "refused although there is room");
    return false;
  }

  void fork(size_t from, size_t to) {
    sequences_[to] = sequences_[from].fork();
    tokens_[to] = std::vector<float>(tokens_[from]);
  }

  void move(size_t from, size_t to) {
    sequences_[to] = std::move(sequences_[from]);
    if (from == to) return;
    tokens_[to] = std::exchange(tokens_[from], {});
  }

  void truncate(size_t which, int64_t tokens) {
    tokens = std::min(tokens, sequences_[which].length());
    sequences_[which].truncate(tokens);
    tokens_[which].resize(static_cast<size_t>(tokens));
  }

  KvBlockPool pool_;
  std::vector<KvSequence> sequences_;
  std::vector<std::vector<float>> tokens_;
  float next_ = 0.0f;
};

}  // namespace

std::vector<std::string> seeds() {
  const auto bytes = [](std::vector<int> values) {
    std::string text;
    for (const int value : values) text += static_cast<char>(value);
    return text;
  };
  return {
      bytes({0, 80, 1, 4, 0, 41, 0, 44, 2, 20, 0, 12, 6, 0, 4, 1}),  // append, fork, both go on, truncate, trim, drop
      bytes({0, 252, 0, 253, 0, 254, 0, 255, 0, 252}),               // until the pool is full
      bytes({3, 100, 0, 8, 5, 4, 1, 5, 3, 81, 0, 41}),               // failed steps, moves
  };
}

void run(std::string_view input) {
  Tables tables;
  for (size_t i = 0; i + 1 < std::min(input.size(), 2 * kMaxOperations); i += 2) {
    tables.step(static_cast<uint8_t>(input[i]), static_cast<uint8_t>(input[i + 1]));
    tables.check();
  }
}

}  // namespace atb::fuzz

// SPDX-License-Identifier: Apache-2.0
// A cache of a few sequences with known contents, for calls of operators with state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/kv_layout.h"
#include "ir/reference.h"
#include "ops/guarded_buffer.h"

namespace atb::testing {

// A sequence of the step: positions stored before it, and its rows in it.
struct CachePart {
  int64_t past = 0;
  int64_t rows = 0;
};

class KvFixture {
 public:
  // Random keys and values (exact in the cache's dtype) in slot `slot`; those of the step's own rows too where
  // `own_rows_stored` (attention reads them, an append writes them). All other bytes are NaN.
  KvFixture(const KvLayout& layout, std::vector<CachePart> parts, int64_t slot, bool own_rows_stored);

  const KvLayout& layout() const { return layout_; }
  int64_t rows() const;  // of the step
  std::vector<SequenceStep> steps() const;
  std::vector<RefSequence> ref_steps() const;
  void reset();  // the contents as they were made
  // The same contents for the interpreter; anew each time.
  template <class T>
  std::shared_ptr<RefKvState<T>> state() const;

  std::vector<std::byte> bytes() const;  // of all blocks, in order
  bool intact() const;                   // nothing was written beside a block
  // Largest difference between the slot and `expected`, over the largest expected value. NaN where either has NaN.
  double error(const RefKvState<double>& expected) const;
  // Bytes of keys and values that attention over the whole past reads, once each.
  double read_bytes() const;

 private:
  struct Sequence {
    CachePart part;
    std::vector<float> k, v;  // [positions][kv_heads][head_dim]
    std::vector<std::unique_ptr<GuardedBuffer>> blocks;
    std::vector<std::byte*> pointers;
  };
  int64_t stored(const Sequence& sequence) const { return sequence.part.past + (own_rows_ ? sequence.part.rows : 0); }
  std::byte* key(const Sequence& sequence, int64_t position, int64_t head, int64_t d) const;
  std::byte* value(const Sequence& sequence, int64_t position, int64_t head, int64_t d) const;
  std::byte* slot(const Sequence& sequence, int64_t position) const;

  KvLayout layout_;
  int64_t slot_;
  bool own_rows_;
  std::vector<Sequence> sequences_;
};

}  // namespace atb::testing

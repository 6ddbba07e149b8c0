// SPDX-License-Identifier: Apache-2.0
// Executes ragged steps of a decoder: its program, packed weights, plans by shape bucket, arena, and thread team.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/memory.h"
#include "core/thread_team.h"
#include "core/trace.h"
#include "runtime/executor.h"
#include "runtime/plan.h"
#include "runtime/program.h"

namespace atb {

struct SessionOptions {
  int threads = 0;  // 0: available_cpus()
  Precision precision = Precision::kExact;
  OptLevel level = OptLevel::kPlanned;
  int64_t block_tokens = 32;  // positions of a KV block; a multiple of 16 that divides 128
};

// Rows of one step, sequence after sequence: row r of the step is token ids[r] at absolute position positions[r].
struct StepInput {
  std::vector<int32_t> ids;
  std::vector<int32_t> positions;
  std::vector<int32_t> logit_rows;  // rows whose logits are wanted, ascending
  std::vector<SequenceStep> sequences;
  void clear();
};

struct SessionStats {
  int64_t plans = 0;
  size_t packed_bytes = 0;
  size_t arena_bytes = 0;              // of the largest plan
  size_t arena_lower_bound_bytes = 0;  // largest set of buffers alive at once in that plan
  size_t scratch_bytes = 0;
};

// Not thread safe: one step at a time (the engine sees to it).
class Session {
 public:
  // `graph` is a step graph as insert_kv_cache makes it: inputs ids, positions, logit_rows, kv; outputs logits, kv.
  Session(std::unique_ptr<Graph> graph, const Device& device, const SessionOptions& options);

  const Graph& graph() const { return program_->graph(); }
  const KvLayout& kv_layout() const { return *kv_layout_; }
  int64_t vocab() const { return vocab_; }
  int threads() const { return team_.size(); }
  ThreadTeam& team() { return team_; }

  // Logits [logit_rows, vocab], valid until the next run. Keys and values of the rows are written to the sequences'
  // blocks. ids must be within the vocabulary (the caller has checked).
  std::span<const float> run(const StepInput& input);

  SessionStats stats() const;
  void set_trace(Trace* trace) { trace_ = trace; }  // null: off

 private:
  // A plan and the frame of its latest step: decoding repeats the same shapes.
  struct Bucket {
    std::unique_ptr<Plan> plan;
    Bindings bindings;
    std::vector<std::byte*> memory;  // what the frame's views point into
    Frame frame;
  };

  Bucket& bucket_for(int64_t rows, int64_t logit_rows);
  Frame& frame_for(Bucket& bucket, const StepInput& input);

  ThreadTeam team_;
  PackedStore store_;
  std::optional<KvLayout> kv_layout_;
  std::unique_ptr<Program> program_;
  Executor executor_;
  std::map<std::pair<int64_t, int64_t>, Bucket> buckets_;
  AlignedBuffer arena_;
  AlignedBuffer logits_;
  int64_t vocab_ = 0;
  Trace* trace_ = nullptr;
};

}  // namespace atb

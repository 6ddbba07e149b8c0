// SPDX-License-Identifier: Apache-2.0
// A small cache with its append and attention kernels, driven step by step: what the tests of attention share.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/kv_layout.h"
#include "ops/kernel_harness.h"

namespace atb::testing {

struct AttentionConfig {
  int64_t heads = 4;
  int64_t kv_heads = 2;
  int64_t head_dim = 16;
  DType dtype = DType::kF32;
  int64_t window = 0;
  int64_t block_tokens = 32;
  double scale = 0.25;
  double softcap = 0;
};

// Queries, keys and values of one sequence: [tokens][heads or kv_heads][head_dim].
struct SequenceData {
  int64_t tokens = 0;
  std::vector<float> q, k, v;
};

// Wide scores, so that softmax is far from uniform. Keys and values are exact in bf16 where the cache is.
inline SequenceData random_sequence(const AttentionConfig& config, int64_t tokens, uint32_t seed) {
  const auto rounded = [&](std::vector<float> values) {
    if (config.dtype == DType::kBF16) {
      for (float& value : values) value = bf16_to_f32(f32_to_bf16(value));
    }
    return values;
  };
  return {tokens, random_values(tokens * config.heads * config.head_dim, seed, 3.0f),
          rounded(random_values(tokens * config.kv_heads * config.head_dim, seed + 1, 3.0f)),
          rounded(random_values(tokens * config.kv_heads * config.head_dim, seed + 2))};
}

// One cached sequence; its blocks come filled with NaN.
class CachedSequence {
 public:
  CachedSequence(const KvLayout& layout, int64_t capacity) : layout_(layout) {
    const int64_t blocks = (capacity + layout.block_tokens - 1) / layout.block_tokens;
    for (int64_t i = 0; i < blocks; ++i) {
      memory_.push_back(std::make_unique<GuardedBuffer>(layout_.block_bytes()));
      blocks_.push_back(memory_.back()->data());
    }
  }
  std::byte* const* blocks() const { return blocks_.data(); }
  bool intact() const {
    return std::all_of(memory_.begin(), memory_.end(), [](const auto& block) { return block->intact(); });
  }
  int64_t past = 0;

 private:
  KvLayout layout_;
  std::vector<std::unique_ptr<GuardedBuffer>> memory_;
  std::vector<std::byte*> blocks_;
};

// A graph of kv_append and flash_attention_kv for any number of tokens, and the kernels of its nodes.
class AttentionRig {
 public:
  static constexpr int64_t kSlots = 2;
  static constexpr int64_t kSlot = 1;

  explicit AttentionRig(const AttentionConfig& config) : config_(config) {
    layout_ = {config.dtype, kSlots, config.kv_heads, config.head_dim, config.block_tokens};
    const Dim tokens = Dim::symbol("T", 0);
    const auto input = [&](const char* name, int64_t heads) {
      return graph_.add_input(name, {DType::kF32, {tokens, Dim(heads), Dim(config.head_dim)}});
    };
    Value* q = input("q", config.heads);
    Value* k = input("k", config.kv_heads);
    Value* v = input("v", config.kv_heads);
    Value* kv = graph_.add_input("kv", {DType::kState, {}});
    Builder b(graph_);
    Node* append = b.node("kv_append", {k, v, kv}, {{"slot", kSlot}});
    Node* attend = b.node("flash_attention_kv", {q, append->output()},
                          {{"slot", kSlot},
                           {"scale", config.scale},
                           {"softcap", config.softcap},
                           {"window", config.window},
                           {"kv_heads", config.kv_heads}});
    graph_.set_outputs({attend->output(), append->output()}, {"out", "kv_out"});
    append_ = append->op().make_cpu_kernel({*append, store_, Precision::kExact, &layout_});
    attend_ = attend->op().make_cpu_kernel({*attend, store_, Precision::kExact, &layout_});
  }

  const KvLayout& layout() const { return layout_; }

  // A part of a step: the next `rows` rows of `data`.
  struct Part {
    CachedSequence* sequence;
    const SequenceData* data;
    int64_t rows;
  };

  // Runs one ragged step; the result of each part in order. Units run backwards one by one if `backwards`.
  std::vector<std::vector<float>> step(const std::vector<Part>& parts, bool backwards = false) {
    std::vector<SequenceStep> steps;
    std::vector<float> q, k, v;
    int64_t total = 0;
    for (const Part& part : parts) {
      const int64_t past = part.sequence->past;
      steps.push_back({total, part.rows, past, part.sequence->blocks()});
      const auto take = [&](const std::vector<float>& from, int64_t width, std::vector<float>& to) {
        to.insert(to.end(), from.begin() + past * width, from.begin() + (past + part.rows) * width);
      };
      take(part.data->q, config_.heads * config_.head_dim, q);
      take(part.data->k, config_.kv_heads * config_.head_dim, k);
      take(part.data->v, config_.kv_heads * config_.head_dim, v);
      total += part.rows;
    }
    const TensorView state = TensorView::dense(nullptr, DType::kState, {});
    std::vector<float> out(static_cast<size_t>(total * config_.heads * config_.head_dim), std::nanf(""));
    run(*append_, {view(k, total, config_.kv_heads), view(v, total, config_.kv_heads), state}, {state}, steps,
        backwards);
    run(*attend_, {view(q, total, config_.heads), state}, {view(out, total, config_.heads)}, steps, backwards);
    std::vector<std::vector<float>> results;
    const int64_t width = config_.heads * config_.head_dim;
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto begin = out.begin() + steps[i].row_begin * width;
      results.emplace_back(begin, begin + parts[i].rows * width);
      parts[i].sequence->past += parts[i].rows;
    }
    return results;
  }

  // The whole sequence in chunks of the given size (the last may be shorter).
  std::vector<float> in_chunks(const SequenceData& data, int64_t chunk, bool backwards = false) {
    CachedSequence sequence(layout_, data.tokens);
    std::vector<float> out;
    while (sequence.past < data.tokens) {
      const auto part = step({{&sequence, &data, std::min(chunk, data.tokens - sequence.past)}}, backwards)[0];
      out.insert(out.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(sequence.intact()) << "wrote outside the blocks";
    return out;
  }

  // The oracle in f64: all rows at once.
  std::vector<double> reference(const SequenceData& data) {
    const auto tensor = [&](const std::vector<float>& values, int64_t heads) {
      return RefTensor<double>{DType::kF32,
                               {data.tokens, heads, config_.head_dim},
                               std::vector<double>(values.begin(), values.end()),
                               {},
                               nullptr};
    };
    return interpret<double>(graph_, {{"q", tensor(data.q, config_.heads)},
                                      {"k", tensor(data.k, config_.kv_heads)},
                                      {"v", tensor(data.v, config_.kv_heads)}})[0]
        .f;
  }

  std::string variant() const { return variant_; }  // of the last attention call

 private:
  TensorView view(std::vector<float>& values, int64_t tokens, int64_t heads) const {
    const int64_t shape[] = {tokens, heads, config_.head_dim};
    return TensorView::dense(reinterpret_cast<std::byte*>(values.data()), DType::kF32, shape);
  }

  void run(const Kernel& kernel, const std::vector<TensorView>& inputs, const std::vector<TensorView>& outputs,
           const std::vector<SequenceStep>& steps, bool backwards) {
    Call call{inputs, outputs, steps, nullptr};
    GuardedBuffer scratch(kernel.scratch_bytes(call));
    GuardedBuffer worker(kernel.worker_scratch_bytes(call));
    call.scratch = scratch.data();
    for (int phase = 0; phase < kernel.phases(); ++phase) {
      const int64_t units = kernel.units(call, phase);
      for (int64_t i = 0; backwards && i < units; ++i) {
        worker.fill(std::byte{0xff});
        kernel.run(call, phase, units - 1 - i, units - i, worker.data());
      }
      if (!backwards && units > 0) kernel.run(call, phase, 0, units, worker.data());
    }
    EXPECT_TRUE(scratch.intact()) << "wrote outside the scratch";
    EXPECT_TRUE(worker.intact()) << "wrote outside the worker's scratch";
    variant_ = kernel.variant(call);
  }

  AttentionConfig config_;
  KvLayout layout_;
  Graph graph_;
  PackedStore store_;
  std::unique_ptr<Kernel> append_;
  std::unique_ptr<Kernel> attend_;
  std::string variant_;
};

inline double largest_error(const std::vector<float>& actual, const std::vector<double>& expected) {
  if (actual.size() != expected.size()) return std::nan("");
  double error = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::abs(static_cast<double>(actual[i]) - expected[i]);
    if (!(difference <= error)) error = difference;  // a NaN stays
  }
  return error;
}

inline bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace atb::testing

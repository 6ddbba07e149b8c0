// SPDX-License-Identifier: Apache-2.0
#include "runtime/session.h"

#include <algorithm>

#include "core/error.h"

namespace atb {
namespace {

// Bucket limits: decode batches, short prompts, and prefill chunks; beyond, multiples of the last.
constexpr int64_t kBucketRows[] = {8, 64, 512};

int64_t bucket_rows(int64_t rows) {
  for (int64_t limit : kBucketRows) {
    if (rows <= limit) return limit;
  }
  return (rows + 511) / 512 * 512;
}

}  // namespace

void StepInput::clear() {
  ids.clear();
  positions.clear();
  logit_rows.clear();
  sequences.clear();
}

Session::Session(std::unique_ptr<Graph> graph, const Device& device, const SessionOptions& options)
    : team_(options.threads), store_(&team_), kv_layout_(kv_layout_of(*graph, options.precision)), executor_(team_) {
  require(
      kv_layout_.has_value(), Code::kInvalidArgument, "[session] ", graph->name(),
      " has no attention over earlier tokens, so there is nothing to cache and generate with; call the model itself");
  kv_layout_->block_tokens = options.block_tokens;
  vocab_ = graph->outputs().at(0)->dim(-1).constant();
  program_ = std::make_unique<Program>(
      std::move(graph), device, store_,
      ProgramOptions{.precision = options.precision, .kv = &*kv_layout_, .level = options.level});
}

Session::Bucket& Session::bucket_for(int64_t rows, int64_t logit_rows) {
  const std::pair<int64_t, int64_t> key{bucket_rows(rows), bucket_rows(logit_rows)};
  Bucket& bucket = buckets_[key];
  if (bucket.plan == nullptr) {
    bucket.plan = std::make_unique<Plan>(*program_, Bindings{{"T", key.first}, {"L", key.second}});
  }
  if (arena_.size() < bucket.plan->arena_bytes()) arena_ = AlignedBuffer(bucket.plan->arena_bytes(), "arena");
  return bucket;
}

// Views are made anew only when shapes or memory have changed since this bucket's latest step.
Frame& Session::frame_for(Bucket& bucket, const StepInput& input) {
  const Bindings bindings{{"T", static_cast<int64_t>(input.ids.size())},
                          {"L", static_cast<int64_t>(input.logit_rows.size())}};
  const auto bytes = [](const std::vector<int32_t>& values) {
    return reinterpret_cast<std::byte*>(const_cast<int32_t*>(values.data()));
  };
  const std::vector<std::byte*> inputs{bytes(input.ids), bytes(input.positions), bytes(input.logit_rows), nullptr};
  std::vector<std::byte*> memory = inputs;
  memory.push_back(arena_.data());
  memory.push_back(logits_.data());
  if (bindings != bucket.bindings || memory != bucket.memory) {
    std::vector<std::byte*> by_name(graph().inputs().size(), nullptr);
    const char* const names[] = {"ids", "positions", "logit_rows", "kv"};
    for (size_t i = 0; i < by_name.size(); ++i) {
      const auto it = std::find(std::begin(names), std::end(names), graph().inputs()[i]->name());
      require(it != std::end(names), Code::kInternal, "[session] unknown step input ", graph().inputs()[i]->name());
      by_name[i] = inputs[static_cast<size_t>(it - std::begin(names))];
    }
    bucket.frame = bucket.plan->resolve(bindings, by_name, {logits_.data(), nullptr}, arena_.data());
    bucket.bindings = bindings;
    bucket.memory = std::move(memory);
  }
  return bucket.frame;
}

std::span<const float> Session::run(const StepInput& input) {
  const size_t logits = input.logit_rows.size() * static_cast<size_t>(vocab_);
  if (logits_.size() < logits * sizeof(float)) logits_ = AlignedBuffer(logits * sizeof(float), "logits");
  Bucket& bucket = bucket_for(static_cast<int64_t>(input.ids.size()), static_cast<int64_t>(input.logit_rows.size()));
  executor_.run(*program_, frame_for(bucket, input), input.sequences, trace_);
  return {reinterpret_cast<const float*>(logits_.data()), logits};
}

SessionStats Session::stats() const {
  SessionStats stats;
  stats.plans = static_cast<int64_t>(buckets_.size());
  stats.packed_bytes = store_.bytes();
  for (const auto& [key, bucket] : buckets_) {
    if (bucket.plan->arena_bytes() < stats.arena_bytes) continue;
    stats.arena_bytes = bucket.plan->arena_bytes();
    stats.arena_lower_bound_bytes = bucket.plan->lower_bound_bytes();
  }
  stats.scratch_bytes = executor_.scratch_bytes();
  return stats;
}

}  // namespace atb

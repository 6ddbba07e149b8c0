// SPDX-License-Identifier: Apache-2.0
#include "ops/kv_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/op_case.h"

namespace atb::testing {
namespace {

void put(DType dtype, float value, std::byte* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, &value, sizeof(value));
  } else {
    const uint16_t bits = f32_to_bf16(value);
    std::memcpy(to, &bits, sizeof(bits));
  }
}

float get(DType dtype, const std::byte* from) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return bf16_to_f32(bits);
}

std::vector<float> stored_values(DType dtype, int64_t count, uint32_t seed, float scale) {
  std::vector<float> values = random_values(count, seed, scale);
  if (dtype == DType::kBF16) {
    for (float& value : values) value = bf16_to_f32(f32_to_bf16(value));
  }
  return values;
}

}  // namespace

KvFixture::KvFixture(const KvLayout& layout, std::vector<CachePart> parts, int64_t slot, bool own_rows_stored)
    : layout_(layout), slot_(slot), own_rows_(own_rows_stored) {
  uint32_t seed = 71;
  for (const CachePart& part : parts) {
    Sequence sequence;
    sequence.part = part;
    const int64_t positions = part.past + part.rows;
    const int64_t count = positions * layout.kv_heads * layout.head_dim;
    sequence.k = stored_values(layout.dtype, count, seed++, 3.0f);
    sequence.v = stored_values(layout.dtype, count, seed++, 1.0f);
    for (int64_t at = 0; at < positions; at += layout.block_tokens) {
      sequence.blocks.push_back(std::make_unique<GuardedBuffer>(layout.block_bytes()));
      sequence.pointers.push_back(sequence.blocks.back()->data());
    }
    sequences_.push_back(std::move(sequence));
  }
  reset();
}

int64_t KvFixture::rows() const {
  int64_t total = 0;
  for (const Sequence& sequence : sequences_) total += sequence.part.rows;
  return total;
}

std::vector<SequenceStep> KvFixture::steps() const {
  std::vector<SequenceStep> steps;
  int64_t row = 0;
  for (const Sequence& sequence : sequences_) {
    steps.push_back({row, sequence.part.rows, sequence.part.past, sequence.pointers.data()});
    row += sequence.part.rows;
  }
  return steps;
}

std::vector<RefSequence> KvFixture::ref_steps() const {
  std::vector<RefSequence> steps;
  int64_t row = 0;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const CachePart& part = sequences_[i].part;
    steps.push_back({static_cast<int64_t>(i), row, part.rows, part.past});
    row += part.rows;
  }
  return steps;
}

std::byte* KvFixture::slot(const Sequence& sequence, int64_t position) const {
  const auto block = static_cast<size_t>(position / layout_.block_tokens);
  return sequence.pointers[block] + static_cast<size_t>(slot_) * layout_.slot_bytes();
}

std::byte* KvFixture::key(const Sequence& sequence, int64_t position, int64_t head, int64_t d) const {
  const int64_t token = position % layout_.block_tokens;
  const int64_t lane = d * kKeyPanel + token % kKeyPanel;
  return slot(sequence, position) + layout_.k_panel(head, token / kKeyPanel) +
         static_cast<size_t>(lane) * layout_.element();
}

std::byte* KvFixture::value(const Sequence& sequence, int64_t position, int64_t head, int64_t d) const {
  return slot(sequence, position) + layout_.v_row(head, position % layout_.block_tokens) +
         static_cast<size_t>(d) * layout_.element();
}

void KvFixture::reset() {
  for (const Sequence& sequence : sequences_) {
    for (const auto& block : sequence.blocks) block->fill(std::byte{0xff});
    size_t at = 0;
    for (int64_t position = 0; position < stored(sequence); ++position) {
      for (int64_t head = 0; head < layout_.kv_heads; ++head) {
        for (int64_t d = 0; d < layout_.head_dim; ++d, ++at) {
          put(layout_.dtype, sequence.k[at], key(sequence, position, head, d));
          put(layout_.dtype, sequence.v[at], value(sequence, position, head, d));
        }
      }
    }
  }
}

template <class T>
std::shared_ptr<RefKvState<T>> KvFixture::state() const {
  auto state = std::make_shared<RefKvState<T>>();
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const Sequence& sequence = sequences_[i];
    const auto count = stored(sequence) * layout_.kv_heads * layout_.head_dim;
    auto& entry = state->entries[{slot_, static_cast<int64_t>(i)}];
    entry.k.assign(sequence.k.begin(), sequence.k.begin() + count);
    entry.v.assign(sequence.v.begin(), sequence.v.begin() + count);
  }
  return state;
}
template std::shared_ptr<RefKvState<float>> KvFixture::state() const;
template std::shared_ptr<RefKvState<double>> KvFixture::state() const;

std::vector<std::byte> KvFixture::bytes() const {
  std::vector<std::byte> all;
  for (const Sequence& sequence : sequences_) {
    for (const auto& block : sequence.blocks) all.insert(all.end(), block->data(), block->data() + block->size());
  }
  return all;
}

bool KvFixture::intact() const {
  return std::all_of(sequences_.begin(), sequences_.end(), [](const Sequence& sequence) {
    return std::all_of(sequence.blocks.begin(), sequence.blocks.end(),
                       [](const auto& block) { return block->intact(); });
  });
}

double KvFixture::error(const RefKvState<double>& expected) const {
  double error = 0;
  double scale = 1e-30;
  const auto compare = [&](double want, float have) {
    if (std::isnan(want) || std::isnan(have)) error = std::nan("");
    if (!std::isnan(error)) error = std::max(error, std::abs(want - static_cast<double>(have)));
    scale = std::max(scale, std::abs(want));
  };
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const auto found = expected.entries.find({slot_, static_cast<int64_t>(i)});
    if (found == expected.entries.end()) continue;
    size_t at = 0;
    const auto positions =
        static_cast<int64_t>(found->second.k.size()) / std::max<int64_t>(1, layout_.kv_heads * layout_.head_dim);
    for (int64_t position = 0; position < positions; ++position) {
      for (int64_t head = 0; head < layout_.kv_heads; ++head) {
        for (int64_t d = 0; d < layout_.head_dim; ++d, ++at) {
          compare(found->second.k[at], get(layout_.dtype, key(sequences_[i], position, head, d)));
          compare(found->second.v[at], get(layout_.dtype, value(sequences_[i], position, head, d)));
        }
      }
    }
  }
  return error / scale;
}

double KvFixture::read_bytes() const {
  double positions = 0;
  for (const Sequence& sequence : sequences_) positions += static_cast<double>(sequence.part.past + sequence.part.rows);
  return positions * static_cast<double>(2 * layout_.kv_heads * layout_.head_dim) *
         static_cast<double>(layout_.element());
}

}  // namespace atb::testing

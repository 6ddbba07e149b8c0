// SPDX-License-Identifier: Apache-2.0
// Depth-first placement by rising offset, pruned by section, restarted with orders that prefer sections that failed.
#include "passes/plan_memory_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace atb {
namespace {

// Nodes of one run for each buffer: a good order needs about one, and a bad one is better replaced than repaired.
constexpr double kNodesPerItem = 1.5;
constexpr int64_t kPlainRuns = 4;      // the first orders are without noise
constexpr double kNoise = 0.3;         // later ones multiply their keys by e^-0.3 .. e^0.3
constexpr double kFailureDecay = 0.7;  // per run

}  // namespace

SkylineSearch::SkylineSearch(std::vector<PlannedBuffer> buffers) {
  std::vector<int64_t> times;
  for (const PlannedBuffer& buffer : buffers) times.insert(times.end(), {buffer.lower, buffer.upper});
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const auto section_of = [&](int64_t time) {
    return static_cast<size_t>(std::lower_bound(times.begin(), times.end(), time) - times.begin());
  };
  sections_.resize(times.size());
  for (const PlannedBuffer& buffer : buffers) {
    Item item;
    item.size = buffer.size;
    item.life = static_cast<int64_t>(static_cast<uint64_t>(buffer.upper) - static_cast<uint64_t>(buffer.lower));
    item.first = section_of(buffer.lower);
    item.last = section_of(buffer.upper);
    for (size_t s = item.first; s < item.last; ++s) sections_[s].missing += item.size;
    items_.push_back(std::move(item));
  }
  for (Item& item : items_) {
    for (size_t s = item.first; s < item.last; ++s) item.contention = std::max(item.contention, sections_[s].missing);
    for (size_t other = 0; other < items_.size(); ++other) {
      if (&items_[other] != &item && items_[other].first < item.last && item.first < items_[other].last) {
        item.conflicts.push_back(static_cast<int32_t>(other));
      }
    }
  }
  offsets_.assign(items_.size(), 0);
  candidates_.resize(items_.size() + 1);
}

bool SkylineSearch::fit(int64_t capacity, int64_t work) {
  const int64_t limit = work_ + work;
  const int64_t max_nodes = static_cast<int64_t>(kNodesPerItem * static_cast<double>(items_.size())) + 10;
  for (Section& section : sections_) section.failures = 0;
  for (int64_t i = 0; work_ < limit; ++i) {
    if (run(preorder(i), capacity, max_nodes)) return true;
    for (Section& section : sections_) section.failures *= kFailureDecay;
  }
  return false;
}

bool SkylineSearch::fit_quickly(int64_t capacity) {
  for (Section& section : sections_) section.failures = 0;
  for (int64_t i = 0; i < kPlainRuns; ++i) {
    if (run(preorder(i), capacity, 2 * static_cast<int64_t>(items_.size()) + 10)) return true;
  }
  return false;
}

// Items by falling preference among those that can lie equally low.
std::vector<int32_t> SkylineSearch::preorder(int64_t run) {
  std::vector<std::array<double, 3>> keys;
  for (const Item& item : items_) {
    double failures = 0;
    for (size_t s = item.first; s < item.last; ++s) failures = std::max(failures, sections_[s].failures);
    // From bits of our own: the library's distributions differ between implementations.
    const double unit = static_cast<double>(random_() >> 11) * 0x1.0p-53;
    const double noise = run < kPlainRuns ? 1.0 : std::exp(kNoise * (2 * unit - 1));
    const double life = static_cast<double>(item.life) * noise;
    const double area = life * static_cast<double>(item.size);
    const double contention = run == 0 ? static_cast<double>(item.contention) : failures;
    switch (run % 4) {
      case 0:
        keys.push_back({contention, life, area});
        break;
      case 1:
        keys.push_back({contention, area, life});
        break;
      case 2:
        keys.push_back({life * (1 + failures), area, static_cast<double>(item.contention)});
        break;
      default:
        keys.push_back({area * (1 + failures), life, static_cast<double>(item.contention)});
    }
  }
  std::vector<int32_t> order(items_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return keys[static_cast<size_t>(a)] > keys[static_cast<size_t>(b)]; });
  return order;
}

bool SkylineSearch::run(std::vector<int32_t> preorder, int64_t capacity, int64_t max_nodes) {
  preorder_ = std::move(preorder);
  capacity_ = capacity;
  nodes_left_ = max_nodes;
  lowest_.assign(items_.size(), 0);
  placed_.assign(items_.size(), false);
  trail_.clear();
  for (Section& section : sections_) section.missing = 0;
  for (const Item& item : items_) {
    for (size_t s = item.first; s < item.last; ++s) sections_[s].missing += item.size;
  }
  return place_rest(0, 0);
}

// Places all items that are left, none below `floor`.
bool SkylineSearch::place_rest(size_t depth, int64_t floor) {
  if (depth == items_.size()) return true;
  if (nodes_left_-- <= 0 || !find_candidates(depth, floor)) return false;
  for (const auto& [offset, place_in_order] : candidates_[depth]) {
    const int32_t item = preorder_[static_cast<size_t>(place_in_order)];
    const size_t trail_size = trail_.size();
    place(item, offset);
    if (place_rest(depth + 1, offset)) return true;
    if (nodes_left_ <= 0) return false;
    unplace(item, trail_size);
  }
  return false;
}

// Which items may come next, best first; false if some section cannot hold what it still misses.
bool SkylineSearch::find_candidates(size_t depth, int64_t floor) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  work_ += static_cast<int64_t>(items_.size() + sections_.size());
  std::vector<Candidate>& candidates = candidates_[depth];
  candidates.clear();
  // An item that would begin where another could already have ended leaves a gap that this one fits into: another order
  // of the same plan, or a worse plan.
  int64_t first_end = kNone;
  for (size_t i = 0; i < preorder_.size(); ++i) {
    const auto index = static_cast<size_t>(preorder_[i]);
    if (placed_[index]) continue;
    const Item& item = items_[index];
    const int64_t offset = std::max(lowest_[index], floor);
    if (offset + item.size > capacity_) {
      const double share = 1.0 / static_cast<double>(item.last - item.first);
      for (size_t s = item.first; s < item.last; ++s) sections_[s].failures += share;
      return false;
    }
    if (offset < first_end) candidates.emplace_back(offset, static_cast<int32_t>(i));
    first_end = std::min(first_end, offset + item.size);
  }
  for (Section& section : sections_) section.lowest = kNone;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (placed_[i]) continue;
    const Item& item = items_[i];
    const int64_t offset = std::max(lowest_[i], floor);
    work_ += static_cast<int64_t>(item.last - item.first);
    for (size_t s = item.first; s < item.last; ++s) sections_[s].lowest = std::min(sections_[s].lowest, offset);
  }
  for (Section& section : sections_) {
    if (section.missing > 0 && section.lowest + section.missing > capacity_) {
      section.failures += 1;
      return false;
    }
  }
  std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.first >= first_end; });
  std::sort(candidates.begin(), candidates.end());
  return true;
}

void SkylineSearch::place(int32_t index, int64_t offset) {
  const Item& item = items_[static_cast<size_t>(index)];
  placed_[static_cast<size_t>(index)] = true;
  offsets_[static_cast<size_t>(index)] = offset;
  for (size_t s = item.first; s < item.last; ++s) sections_[s].missing -= item.size;
  for (const int32_t other : item.conflicts) {
    int64_t& lowest = lowest_[static_cast<size_t>(other)];
    if (placed_[static_cast<size_t>(other)] || lowest >= offset + item.size) continue;
    trail_.emplace_back(other, lowest);
    lowest = offset + item.size;
  }
  work_ += static_cast<int64_t>(item.conflicts.size());
}

void SkylineSearch::unplace(int32_t index, size_t trail_size) {
  const Item& item = items_[static_cast<size_t>(index)];
  placed_[static_cast<size_t>(index)] = false;
  for (size_t s = item.first; s < item.last; ++s) sections_[s].missing += item.size;
  while (trail_.size() > trail_size) {
    lowest_[static_cast<size_t>(trail_.back().first)] = trail_.back().second;
    trail_.pop_back();
  }
}

}  // namespace atb

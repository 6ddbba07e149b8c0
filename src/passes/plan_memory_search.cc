// SPDX-License-Identifier: Apache-2.0
// Depth-first placement by rising offset, pruned by section, restarted with orders that prefer sections that failed.
#include "passes/plan_memory_search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

namespace atb {
namespace {

// Nodes of one run for each buffer: a good order needs about one, and a bad one is better replaced than repaired.
constexpr double kNodesPerItem = 1.5;
constexpr int64_t kPlainRuns = 4;      // the first orders are without noise
constexpr double kNoise = 0.3;         // later ones multiply their keys by 0.7 .. 1.3
constexpr double kFailureDecay = 0.7;  // per run
constexpr int64_t kOrderWork = 100;    // an item's part of making an order
// As the lowest offset of an item: it has been placed. Above every offset; adding a size cannot overflow.
constexpr int64_t kPlaced = (int64_t{1} << 62) - 1;

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
    for (size_t s = item.first; s < item.last; ++s) {
      sections_[s].missing += item.size;
      sections_[s].items.push_back(static_cast<int32_t>(items_.size()));
      sections_[s].witness = static_cast<int32_t>(items_.size());
    }
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
  for (const Item& item : items_) sizes_.push_back(item.size);
  rank_.assign(items_.size(), 0);
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
  work_ += kOrderWork * static_cast<int64_t>(items_.size());
  std::vector<std::array<double, 3>> keys;
  for (const Item& item : items_) {
    double failures = 0;
    for (size_t s = item.first; s < item.last; ++s) failures = std::max(failures, sections_[s].failures);
    // From bits of our own: the library's distributions differ between implementations.
    const double unit = static_cast<double>(random_() >> 11) * 0x1.0p-53;
    const double noise = run < kPlainRuns ? 1.0 : 1.0 + kNoise * (2 * unit - 1);
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
  for (size_t i = 0; i < preorder_.size(); ++i) rank_[static_cast<size_t>(preorder_[i])] = static_cast<int32_t>(i);
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
  std::vector<Candidate>& candidates = candidates_[depth];
  for (auto next = candidates.begin(); next != candidates.end(); ++next) {
    // Mostly the best one alone is tried: sorting them all would cost more than the rest of the node.
    std::iter_swap(next, std::min_element(next, candidates.end()));
    const int64_t offset = next->first;
    const int32_t item = preorder_[static_cast<size_t>(next->second)];
    const size_t trail_size = trail_.size();
    if (place(item, offset) && place_rest(depth + 1, offset)) return true;
    if (nodes_left_ <= 0) return false;
    unplace(item, trail_size);
  }
  return false;
}

// Which items may come next; false if some section cannot hold what it still misses.
bool SkylineSearch::find_candidates(size_t depth, int64_t floor) {
  work_ += 2 * static_cast<int64_t>(items_.size() + sections_.size());
  for (Section& section : sections_) {
    if (section.missing > 0 && !can_hold(section, floor)) {
      section.failures += 1;
      return false;
    }
  }
  // An item that would begin where another could already have ended leaves a gap that this one fits into: another order
  // of the same plan, or a worse plan.
  int64_t first_end = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < sizes_.size(); ++i) first_end = std::min(first_end, std::max(lowest_[i], floor) + sizes_[i]);
  std::vector<Candidate>& candidates = candidates_[depth];
  candidates.clear();
  for (size_t i = 0; i < sizes_.size(); ++i) {
    const int64_t offset = std::max(lowest_[i], floor);
    if (offset < first_end) candidates.emplace_back(offset, rank_[i]);
  }
  return true;
}

// Whether some item that is left in the section can lie low enough for all of them to fit above its begin. The one that
// could at the last look mostly still can.
bool SkylineSearch::can_hold(Section& section, int64_t floor) {
  const int64_t highest = capacity_ - section.missing;
  if (floor > highest) return false;
  const auto low_enough = [&](int32_t item) { return lowest_[static_cast<size_t>(item)] <= highest; };
  if (low_enough(section.witness)) return true;
  const auto found = std::find_if(section.items.begin(), section.items.end(), low_enough);
  work_ += found - section.items.begin();
  if (found == section.items.end()) return false;
  section.witness = *found;
  return true;
}

// False if some item that is left no longer fits.
bool SkylineSearch::place(int32_t index, int64_t offset) {
  const Item& item = items_[static_cast<size_t>(index)];
  const int64_t end = offset + item.size;
  offsets_[static_cast<size_t>(index)] = offset;
  trail_.emplace_back(index, lowest_[static_cast<size_t>(index)]);
  lowest_[static_cast<size_t>(index)] = kPlaced;
  for (size_t s = item.first; s < item.last; ++s) sections_[s].missing -= item.size;
  work_ += static_cast<int64_t>(item.conflicts.size());
  bool fits = true;
  for (const int32_t other : item.conflicts) {
    int64_t& lowest = lowest_[static_cast<size_t>(other)];
    if (lowest >= end) continue;
    trail_.emplace_back(other, lowest);
    lowest = end;
    if (end + sizes_[static_cast<size_t>(other)] <= capacity_) continue;
    if (fits) blame(items_[static_cast<size_t>(other)]);
    fits = false;
  }
  return fits;
}

// Notes in its sections that an item did not fit.
void SkylineSearch::blame(const Item& item) {
  const double share = 1.0 / static_cast<double>(item.last - item.first);
  for (size_t s = item.first; s < item.last; ++s) sections_[s].failures += share;
}

void SkylineSearch::unplace(int32_t index, size_t trail_size) {
  const Item& item = items_[static_cast<size_t>(index)];
  for (size_t s = item.first; s < item.last; ++s) sections_[s].missing += item.size;
  while (trail_.size() > trail_size) {
    lowest_[static_cast<size_t>(trail_.back().first)] = trail_.back().second;
    trail_.pop_back();
  }
}

}  // namespace atb

// SPDX-License-Identifier: Apache-2.0
// Offset planning: first fit in several greedy orders, then a search for smaller arenas.
#include "passes/plan_memory.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "passes/plan_memory_search.h"

namespace atb {
namespace {

using Order = std::vector<int32_t>;

constexpr size_t kMaxSearched = 2048;  // the search keeps a list of conflicts for each buffer

struct Placement {
  std::vector<int64_t> offsets;
  int64_t total = std::numeric_limits<int64_t>::max();
};

// Places buffers one after another, each at the lowest offset where it conflicts with none placed before.
class FirstFit {
 public:
  explicit FirstFit(const std::vector<PlannedBuffer>& buffers) : buffers_(buffers) {}

  // Gives up (total stays at the maximum) as soon as the arena would reach `limit`.
  Placement place(const Order& order, int64_t limit = std::numeric_limits<int64_t>::max()) {
    Placement result;
    result.offsets.assign(buffers_.size(), 0);
    placed_.clear();
    int64_t total = 0;
    for (const int32_t index : order) {
      const PlannedBuffer& buffer = buffers_[static_cast<size_t>(index)];
      const int64_t offset = lowest_gap(buffer);
      const int64_t end = offset + buffer.size;
      if (end >= limit) return result;
      total = std::max(total, end);
      result.offsets[static_cast<size_t>(index)] = offset;
      const Placed entry{offset, end, buffer.lower, buffer.upper};
      placed_.insert(std::upper_bound(placed_.begin(), placed_.end(), entry), entry);
    }
    result.total = total;
    return result;
  }

 private:
  struct Placed {
    int64_t begin, end, lower, upper;
    bool operator<(const Placed& other) const { return begin < other.begin; }
  };

  int64_t lowest_gap(const PlannedBuffer& buffer) const {
    int64_t offset = 0;
    for (const Placed& other : placed_) {  // in order of begin
      if (other.lower >= buffer.upper || other.upper <= buffer.lower) continue;
      if (other.begin - offset >= buffer.size) break;
      offset = std::max(offset, other.end);
    }
    return offset;
  }

  const std::vector<PlannedBuffer>& buffers_;
  std::vector<Placed> placed_;
};

int64_t rounded_up(int64_t bytes, int64_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

// Copies with sizes rounded up; checks everything the algorithms rely on.
std::vector<PlannedBuffer> checked(const std::vector<PlannedBuffer>& buffers, int64_t alignment) {
  require(alignment >= 1 && alignment <= (int64_t{1} << 30) && (alignment & (alignment - 1)) == 0,
          Code::kInvalidArgument, "[plan_memory] alignment is ", alignment, ", allowed are powers of two to 2^30");
  require(buffers.size() <= size_t{1} << 30, Code::kInvalidArgument,
          "[plan_memory] too many buffers: ", buffers.size());
  constexpr int64_t kMaxTotal = int64_t{1} << 62;
  std::vector<PlannedBuffer> result = buffers;
  int64_t total = 0;
  for (PlannedBuffer& buffer : result) {
    require(buffer.lower < buffer.upper, Code::kInvalidArgument, "[plan_memory] buffer ", buffer.id, " lives from ",
            buffer.lower, " to ", buffer.upper, ", the end must be after the begin");
    require(buffer.size >= 0 && buffer.size <= kMaxTotal - alignment, Code::kInvalidArgument, "[plan_memory] buffer ",
            buffer.id, " has ", buffer.size, " bytes, allowed are 0 to 2^62");
    buffer.size = rounded_up(buffer.size, alignment);
    total = buffer.size > kMaxTotal - total ? kMaxTotal + 1 : total + buffer.size;
    require(total <= kMaxTotal, Code::kInvalidArgument, "[plan_memory] the sizes up to buffer ", buffer.id,
            " sum to more than 2^62 bytes");
  }
  return result;
}

// For each buffer the largest sum of sizes alive at one time during its life: how contended its place is.
std::vector<int64_t> contention(const std::vector<PlannedBuffer>& buffers) {
  std::vector<int64_t> times;
  for (const PlannedBuffer& buffer : buffers) times.insert(times.end(), {buffer.lower, buffer.upper});
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const auto index_of = [&](int64_t time) {
    return static_cast<size_t>(std::lower_bound(times.begin(), times.end(), time) - times.begin());
  };
  std::vector<int64_t> live(times.size() + 1, 0);
  for (const PlannedBuffer& buffer : buffers) {
    live[index_of(buffer.lower)] += buffer.size;
    live[index_of(buffer.upper)] -= buffer.size;
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  std::vector<int64_t> result;
  for (const PlannedBuffer& buffer : buffers) {
    const auto begin = live.begin() + static_cast<std::ptrdiff_t>(index_of(buffer.lower));
    const auto end = live.begin() + static_cast<std::ptrdiff_t>(index_of(buffer.upper));
    result.push_back(*std::max_element(begin, end));
  }
  return result;
}

// Orders known to work on different kinds of graphs; ties by position, so that the result is always the same.
std::vector<Order> greedy_orders(const std::vector<PlannedBuffer>& buffers, const std::vector<int64_t>& contended) {
  Order identity;  // without buffers of no bytes: they may lie anywhere
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].size > 0) identity.push_back(static_cast<int32_t>(i));
  }
  const auto by = [&](auto key) {
    Order order = identity;
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return key(static_cast<size_t>(a)) > key(static_cast<size_t>(b)); });
    return order;
  };
  const auto size = [&](size_t i) { return static_cast<double>(buffers[i].size); };
  const auto life = [&](size_t i) {
    return static_cast<double>(buffers[i].upper) - static_cast<double>(buffers[i].lower);
  };
  const auto crowd = [&](size_t i) { return static_cast<double>(contended[i]); };
  return {by(size),
          by([&](size_t i) { return size(i) * life(i); }),
          by(life),
          by([&](size_t i) { return -static_cast<double>(buffers[i].lower); }),
          by([&](size_t i) { return std::pair(crowd(i), size(i) * life(i)); }),
          by([&](size_t i) { return std::pair(crowd(i), size(i)); }),
          by([&](size_t i) { return std::pair(crowd(i), life(i)); }),
          by([&](size_t i) { return std::pair(life(i), size(i)); })};
}

// Lowers the arena in steps towards the lower bound as long as the search succeeds and work is left.
void improve(const std::vector<PlannedBuffer>& rounded, int64_t lower_bound, int64_t alignment, int64_t work,
             Placement& best) {
  std::vector<PlannedBuffer> items;
  std::vector<size_t> origin;
  for (size_t i = 0; i < rounded.size(); ++i) {
    if (rounded[i].size == 0) continue;
    items.push_back(rounded[i]);
    origin.push_back(i);
  }
  if (items.size() > kMaxSearched || work <= 0) return;
  SkylineSearch search(items);
  const auto accept = [&] {
    best.total = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      best.offsets[origin[i]] = search.offsets()[i];
      best.total = std::max(best.total, search.offsets()[i] + items[i].size);
    }
  };
  if (search.fit_quickly(lower_bound)) return accept();
  // Hard cases: first the ratio that is worth most of the work, then nearer or, where it was not reached, farther ones.
  const auto target = [&](double ratio) {
    const auto bytes = static_cast<int64_t>(static_cast<double>(lower_bound) * ratio);
    return std::min(bytes / alignment * alignment, best.total - alignment);
  };
  const auto left = [&] { return std::max<int64_t>(0, work - search.work_done()); };
  if (search.fit(target(1.05), left() * 3 / 4)) {
    accept();
    for (const double ratio : {1.03, 1.02, 1.01, 1.0}) {
      if (best.total <= lower_bound || !search.fit(std::max(lower_bound, target(ratio)), left())) return;
      accept();
    }
    return;
  }
  for (const double ratio : {1.08, 1.12, 1.2}) {
    if (!search.fit(target(ratio), left() / 2)) continue;
    return accept();
  }
}

}  // namespace

int64_t live_bytes_bound(const std::vector<PlannedBuffer>& buffers) {
  const auto live = contention(checked(buffers, 1));
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

MemoryPlan plan_memory(const std::vector<PlannedBuffer>& buffers, const PlanMemoryOptions& options) {
  const std::vector<PlannedBuffer> rounded = checked(buffers, options.alignment);
  const std::vector<int64_t> contended = contention(rounded);
  MemoryPlan plan;
  plan.offsets.assign(buffers.size(), 0);
  if (!contended.empty()) plan.lower_bound = *std::max_element(contended.begin(), contended.end());
  if (plan.lower_bound == 0) return plan;
  FirstFit first_fit(rounded);
  Placement best;
  for (const Order& order : greedy_orders(rounded, contended)) {
    Placement placement = first_fit.place(order, best.total);
    if (placement.total >= best.total) continue;
    best = std::move(placement);
    if (best.total == plan.lower_bound) break;
  }
  if (best.total > plan.lower_bound) {
    improve(rounded, plan.lower_bound, options.alignment, options.search_work, best);
  }
  plan.offsets = std::move(best.offsets);
  plan.total = best.total;
  return plan;
}

}  // namespace atb

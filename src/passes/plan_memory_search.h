// SPDX-License-Identifier: Apache-2.0
// The improving search of the memory planner: fits buffers under a capacity from the bottom up, with backtracking.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "passes/plan_memory.h"

namespace atb {

// Decides whether buffers fit under a capacity, by depth-first search with pruning and restarts that learn where it is
// tight. Deterministic: bounded by counted work, never by time. Not a proof when it finds nothing.
//
// Buffers are placed in order of rising offset, each as low as those placed before allow; any plan can be brought into
// that form, and it lets a whole branch be given up as soon as one section of time cannot hold what is still to come.
// (The idea is that of Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning",
// ASPLOS 2023, sections 4-5; the restarts are ours.)
class SkylineSearch {
 public:
  // Buffers must be checked: sizes > 0, lifetimes not empty, sums that cannot overflow.
  explicit SkylineSearch(std::vector<PlannedBuffer> buffers);

  // True with offsets() when a plan under `capacity` was found within `work` steps (about a nanosecond each).
  bool fit(int64_t capacity, int64_t work);
  // True if the first few orders, without any learning, find one.
  bool fit_quickly(int64_t capacity);
  const std::vector<int64_t>& offsets() const { return offsets_; }
  int64_t work_done() const { return work_; }

 private:
  // One time interval between two neighbouring begins or ends; the set of buffers alive in it is constant.
  struct Section {
    int64_t missing = 0;  // bytes of its buffers that are not placed yet
    double failures = 0;  // how often it did not fit; decays from run to run
    int32_t witness = 0;  // the item that could lie low enough when last looked for
    std::vector<int32_t> items;
  };
  struct Item {
    int64_t size = 0, life = 0, contention = 0;
    size_t first = 0, last = 0;  // sections [first, last)
    std::vector<int32_t> conflicts;
  };
  using Candidate = std::pair<int64_t, int32_t>;  // offset, place in the preorder

  std::vector<int32_t> preorder(int64_t run);
  bool run(std::vector<int32_t> preorder, int64_t capacity, int64_t max_nodes);
  bool place_rest(size_t depth, int64_t floor);
  bool find_candidates(size_t depth, int64_t floor);
  bool can_hold(Section& section, int64_t floor);
  bool place(int32_t item, int64_t offset);
  void blame(const Item& item);
  void unplace(int32_t item, size_t trail_size);

  std::vector<Item> items_;
  std::vector<int64_t> sizes_;  // of the items, side by side for the inner loop
  std::vector<Section> sections_;
  std::vector<int64_t> offsets_;
  // State of one run.
  int64_t capacity_ = 0;
  int64_t nodes_left_ = 0;
  int64_t work_ = 0;
  std::vector<int32_t> preorder_;
  std::vector<int32_t> rank_;                       // per item: its place in the preorder
  std::vector<int64_t> lowest_;                     // per item: where those placed before let it lie
  std::vector<std::vector<Candidate>> candidates_;  // per depth
  std::vector<std::pair<int32_t, int64_t>> trail_;  // changes of lowest_, to undo
  std::mt19937_64 random_{1};
};

}  // namespace atb

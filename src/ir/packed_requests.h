// SPDX-License-Identifier: Apache-2.0
// Which constants a kernel wants packed, for whoever makes the kernel.
#pragma once

#include <cstdint>
#include <set>

namespace atb {

// Ids of the constants that the calling thread asks packed stores for while this lives. Of two that live at once the
// later one records. A kernel that asks a store for a constant never reads that constant in Call.
class PackedRequests {
 public:
  PackedRequests();
  ~PackedRequests();
  PackedRequests(const PackedRequests&) = delete;
  PackedRequests& operator=(const PackedRequests&) = delete;
  bool contains(uint64_t id) const { return ids_.contains(id); }

 private:
  friend class PackedStore;
  static void record(uint64_t id);

  std::set<uint64_t> ids_;
  PackedRequests* outer_;
};

}  // namespace atb

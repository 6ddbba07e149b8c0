// SPDX-License-Identifier: Apache-2.0
// The store of packed constants: small forms side by side in slabs of huge pages, large ones in mappings of their own.
#include <utility>

#include "core/error.h"
#include "core/memory.h"
#include "core/thread_team.h"
#include "ir/kernel.h"
#include "ir/packed_requests.h"

namespace atb {
namespace {

// A layer's 4-bit matrix is often smaller than a huge page; put together they still get huge pages, which read about
// 10 % faster. What is never touched of a slab takes no memory.
constexpr size_t kSlabBytes = size_t{16} << 20;
constexpr size_t kOwnMappingBytes = size_t{4} << 20;

AlignedBuffer checked_buffer(size_t bytes, const std::string& constant_name) {
  // A mapping succeeds for more than there is and the process dies later, so what there is gets checked first.
  require_memory(bytes, "weights", "packing " + constant_name);
  return AlignedBuffer(bytes, "weights");
}

thread_local PackedRequests* g_requests = nullptr;

}  // namespace

PackedRequests::PackedRequests() : outer_(std::exchange(g_requests, this)) {}
PackedRequests::~PackedRequests() { g_requests = outer_; }
void PackedRequests::record(uint64_t id) {
  if (g_requests != nullptr) g_requests->ids_.insert(id);
}

struct PackedStore::Entry {
  std::shared_ptr<std::byte> data;
  size_t bytes;
};

// Zero-filled memory that lives as long as someone holds it. Called under the lock.
std::shared_ptr<std::byte> PackedStore::allocate(size_t bytes, const std::string& constant_name) {
  if (bytes >= kOwnMappingBytes) {
    auto buffer = std::make_shared<AlignedBuffer>(checked_buffer(bytes, constant_name));
    return {buffer, buffer->data()};
  }
  const size_t room = align_up(bytes == 0 ? 1 : bytes, kMemoryAlignment);
  if (!slab_ || slab_->size() - slab_used_ < room) {
    slab_ = std::make_shared<AlignedBuffer>(checked_buffer(kSlabBytes, constant_name));
    slab_used_ = 0;
  }
  std::byte* data = slab_->data() + slab_used_;
  slab_used_ += room;
  return {slab_, data};
}

std::shared_ptr<const std::byte> PackedStore::get(
    const ConstantRef& constant, const std::string& layout, size_t bytes, int64_t units,
    const std::function<void(std::byte* dst, int64_t begin, int64_t end)>& pack) {
  require(constant != nullptr, Code::kInternal, "[weights] no constant to pack as ", layout);
  PackedRequests::record(constant->id());
  // One form is packed at a time: the whole team works on it, and its source pages go before the next one's come.
  const std::lock_guard lock(mutex_);
  const auto key = std::make_pair(constant->id(), layout);
  if (const auto found = entries_.find(key); found != entries_.end()) {
    require(found->second->bytes == bytes, Code::kInternal, "[weights] ", constant->name(), " as ", layout, " has ",
            found->second->bytes, " bytes, but ", bytes, " are asked for");
    return found->second->data;
  }
  require(!constant->absent(), Code::kFailedPrecondition, "[weights] ", constant->name(),
          " has no data (made from a config alone, or released once it was packed); load the weights to run it");
  constant->check_readable();
  auto data = allocate(bytes, constant->name());
  if (team_ != nullptr && units > 1) {
    team_->parallel_for(units, [&](int64_t begin, int64_t end, int) { pack(data.get(), begin, end); });
  } else if (units > 0) {
    pack(data.get(), 0, units);
  }
  constant->release_pages();
  entries_.emplace(key, std::make_shared<Entry>(Entry{data, bytes}));
  bytes_ += bytes;
  return data;
}

std::shared_ptr<const float> PackedStore::f32(const ConstantRef& constant) {
  require(constant != nullptr, Code::kInternal, "[weights] no constant to decode");
  const int64_t row = constant->row_elems();
  const size_t bytes = static_cast<size_t>(constant->num_rows() * row) * sizeof(float);
  const auto data = get(constant, "f32", bytes, constant->num_rows(), [&](std::byte* dst, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) constant->decode_row(i, reinterpret_cast<float*>(dst) + i * row);
  });
  return {data, reinterpret_cast<const float*>(data.get())};
}

size_t PackedStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace atb

// SPDX-License-Identifier: Apache-2.0
// The shelf outlives its owner for as long as results are held.
#include "api/result_buffers.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "core/memory.h"

namespace atb {
namespace {

// A free buffer serves a result of at least a quarter of its size: a long call's memory is not held by short ones.
constexpr size_t kLargestShare = 4;

}  // namespace

class ResultBuffers::Shelf {
 public:
  // The free buffer of a result if it fits; empty if not.
  AlignedBuffer pick(size_t index, size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (index >= free_.size()) return {};
    AlignedBuffer picked = std::move(free_[index]);
    const bool fits = picked.size() >= bytes && picked.size() / kLargestShare <= bytes;
    return fits ? std::move(picked) : AlignedBuffer();
  }

  void put_back(size_t index, AlignedBuffer buffer) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      if (index >= free_.size()) free_.resize(index + 1);
      std::swap(free_[index], buffer);  // what lay there is freed
    } catch (...) {
      return;  // no memory for the list: the buffer is freed
    }
  }

  size_t bytes() const {
    const std::lock_guard lock(mutex_);
    size_t sum = 0;
    for (const AlignedBuffer& buffer : free_) sum += buffer.size();
    return sum;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<AlignedBuffer> free_;
};

ResultBuffers::ResultBuffers() : shelf_(std::make_shared<Shelf>()) {}

std::shared_ptr<std::byte> ResultBuffers::take(size_t index, size_t bytes) {
  AlignedBuffer found = shelf_->pick(index, bytes);
  auto buffer = std::make_unique<AlignedBuffer>(found.size() > 0 ? std::move(found)
                                                                 : AlignedBuffer(std::max<size_t>(bytes, 1), "tensor"));
  std::byte* data = buffer->data();
  auto give_back = [shelf = shelf_, index, owned = std::shared_ptr<AlignedBuffer>(std::move(buffer))](std::byte*) {
    shelf->put_back(index, std::move(*owned));
  };
  return {data, std::move(give_back)};
}

size_t ResultBuffers::free_bytes() const { return shelf_->bytes(); }

}  // namespace atb

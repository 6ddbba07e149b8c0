// SPDX-License-Identifier: Apache-2.0
// Memory of a compiled graph's results, taken again once nobody holds the result: fresh pages cost more than small
// graphs do.
#pragma once

#include <cstddef>
#include <memory>

namespace atb {

// Thread-safe. Keeps at most one free buffer a result, of the size that was used last.
class ResultBuffers {
 public:
  ResultBuffers();

  // At least `bytes` for result number `index`, 64-byte aligned, contents undefined. May outlive this object; goes back
  // when the last copy of the pointer is gone. kResourceExhausted where there is no memory.
  std::shared_ptr<std::byte> take(size_t index, size_t bytes);

  // Bytes of the buffers that wait for their next use.
  size_t free_bytes() const;

 private:
  class Shelf;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace atb

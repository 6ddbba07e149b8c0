// SPDX-License-Identifier: Apache-2.0
// Immutable constants: handles to bytes (file range, owned bytes, foreign owner, or absent for a config alone).
// Merging, permuting and tying edit handles and copy no bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/encoding.h"

namespace atb {

// A span of immutable bytes and whatever keeps it alive (mapping, vector, DLPack capsule).
struct Storage {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
  // Drops resident pages of the range (a mapped file); reading again is still right. Null where it means nothing.
  std::function<void(const std::byte* begin, size_t size)> release_pages;
  // Throws kDataLoss if the bytes can no longer be read (a mapped file that was truncated). Null: they always can.
  std::function<void()> check;
};
using StorageRef = std::shared_ptr<const Storage>;

StorageRef storage_from_bytes(std::vector<std::byte> bytes);

// Rows [first_row, first_row + rows) of a row-major [*, row_bytes] array; row i comes from (*row_map)[first_row + i]
// when there is a map. `storage` is null for an absent constant.
struct Segment {
  StorageRef storage;
  size_t offset = 0;  // bytes, of source row 0
  int64_t first_row = 0;
  int64_t rows = 0;
  std::shared_ptr<const std::vector<int32_t>> row_map;
};

class Constant;
using ConstantRef = std::shared_ptr<const Constant>;

// A constant of shape `shape` (rank >= 1: rows = product of all extents but the last; rank 0 counts as [1]).
class Constant {
 public:
  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }                  // logical element type (f32 when encoded)
  const Encoding* encoding() const { return encoding_; }  // null: plain elements of dtype()
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<Segment>& segments() const { return segments_; }
  uint64_t id() const { return id_; }  // unique per handle; key of packed stores
  bool absent() const;
  int64_t num_rows() const;
  int64_t row_elems() const;
  size_t row_bytes() const;
  size_t num_bytes() const;                   // as stored
  const std::byte* row(int64_t index) const;  // bytes of one row; kFailedPrecondition if absent
  // All elements where they are plain and lie in one piece, row-major; else (encoded, put together, absent) null.
  const std::byte* plain_bytes() const;
  void decode_row(int64_t index, float* out) const;  // to f32, exact
  std::vector<float> to_f32() const;                 // whole constant, row-major
  void release_pages() const;                        // after packing
  void check_readable() const;                       // Storage::check of each part; before packing

  // Checks that the segment covers the shape inside the storage (kDataLoss), then makes a handle.
  static ConstantRef from_storage(std::string name, DType dtype, const Encoding* encoding, std::vector<int64_t> shape,
                                  StorageRef storage, size_t offset);
  static ConstantRef absent(std::string name, DType dtype, const Encoding* encoding, std::vector<int64_t> shape);
  static ConstantRef from_f32(std::string name, std::vector<int64_t> shape, std::span<const float> values);
  static ConstantRef from_i32(std::string name, std::vector<int64_t> shape, std::span<const int32_t> values);
  // Concatenation along axis 0 of same-typed constants; the parts' bytes are shared (those of vectors are copied).
  static ConstantRef concat_rows(std::string name, const std::vector<ConstantRef>& parts);
  // Row i of the result is row map[i] of `source` (element i of a vector: its element map[i]).
  static ConstantRef permute_rows(const ConstantRef& source, std::vector<int32_t> map);
  // The same stored bytes as elements of another type of the same size in rows: halves as f32 values in a half
  // encoding.
  static ConstantRef reinterpreted(const ConstantRef& source, DType dtype, const Encoding* encoding);
  // A matrix of plain elements transposed. Its bytes are copied, once: while a transpose is alive, the same handle is
  // given again, and transposing back gives `source`. kUnsupported for encoded ones, kInvalidArgument for other ranks.
  static ConstantRef transpose(const ConstantRef& source);

 private:
  Constant() = default;
  static std::shared_ptr<Constant> make(std::string name, DType dtype, const Encoding* encoding,
                                        std::vector<int64_t> shape, std::vector<Segment> segments);
  std::string name_;
  DType dtype_ = DType::kF32;
  const Encoding* encoding_ = nullptr;
  std::vector<int64_t> shape_;
  std::vector<Segment> segments_;
  std::vector<int64_t> starts_;  // first row of each segment
  uint64_t id_ = 0;
};

// Writes the elements row-major and side by side, decoded to f32 where they are encoded.
void copy_dense(const Constant& constant, std::byte* to);
// The same without a copy where they lie so already. Null for a constant without elements.
std::shared_ptr<const std::byte> dense_bytes(const ConstantRef& constant);

// Decodes `count` values of a plain dtype or encoding (count a multiple of the block) to f32, exactly.
void decode_f32(DType dtype, const Encoding* encoding, const std::byte* src, int64_t count, float* dst);

}  // namespace atb

// SPDX-License-Identifier: Apache-2.0
// Constant handles: checked construction, and edits that compose segments and row maps without copying bytes.
#include "core/constant.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/memory.h"

namespace atb {
namespace {

std::atomic<uint64_t> g_next_id{1};

// a * b, or false on overflow.
bool checked_mul(int64_t a, int64_t b, int64_t* out) { return !__builtin_mul_overflow(a, b, out); }

// Checks the extents and that the element and byte counts fit 63 bits, so that later products cannot overflow.
void check_shape(const std::string& name, DType dtype, const Encoding* encoding, const std::vector<int64_t>& shape,
                 Code code) {
  require(dtype != DType::kState, code, "[constant] ", name, ": a constant has no state type");
  int64_t elements = 1;
  for (const int64_t extent : shape) {
    require(extent >= 0, code, "[constant] ", name, ": extent ", extent, " is negative");
  }
  for (const int64_t extent : shape) {
    // A zero extent must not hide an absurd one, so zeros count as one here.
    require(checked_mul(elements, std::max<int64_t>(extent, 1), &elements), code, "[constant] ", name,
            ": the number of elements exceeds 2^63");
  }
  // 16 bounds the bytes of one element of any dtype or encoding.
  int64_t bytes = 0;
  require(checked_mul(elements, 16, &bytes), code, "[constant] ", name, ": the number of bytes exceeds 2^63");
  if (encoding != nullptr) {
    const int64_t row = shape.empty() ? 1 : shape.back();
    require(row % encoding->block_elems == 0, code, "[constant] ", name, ": a row of ", row,
            " values is not a multiple of the ", encoding->name, " block of ", encoding->block_elems);
  }
}

template <class Element>
void widen(const std::byte* src, int64_t count, float* dst) {
  for (int64_t i = 0; i < count; ++i) {
    Element value;
    std::memcpy(&value, src + static_cast<size_t>(i) * sizeof(Element), sizeof(Element));
    dst[i] = static_cast<float>(value);
  }
}

template <float (*Convert)(uint16_t)>
void widen_half(const std::byte* src, int64_t count, float* dst) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, src + static_cast<size_t>(i) * sizeof(bits), sizeof(bits));
    dst[i] = Convert(bits);
  }
}

template <class Element>
StorageRef storage_from_values(std::span<const Element> values) {
  std::vector<std::byte> bytes(values.size_bytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return storage_from_bytes(std::move(bytes));
}

// Row of the source array that row `index` of the segment comes from.
int64_t source_row(const Segment& segment, int64_t index) {
  const int64_t row = segment.first_row + index;
  return segment.row_map ? (*segment.row_map)[static_cast<size_t>(row)] : row;
}

// Number of the segment that holds `row`, given the first row of each.
size_t segment_of(const std::vector<int64_t>& starts, int64_t row) {
  return static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), row) - starts.begin()) - 1;
}

std::vector<int64_t> starts_of(const std::vector<Segment>& segments) {
  std::vector<int64_t> starts;
  int64_t row = 0;
  for (const Segment& segment : segments) {
    starts.push_back(row);
    row += segment.rows;
  }
  return starts;
}

// The selection `map` of the rows of `segments`: one new segment for each run of rows that lie in one old segment.
std::vector<Segment> select_rows(const std::vector<Segment>& segments, const std::vector<int32_t>& map) {
  const std::vector<int64_t> starts = starts_of(segments);
  std::vector<Segment> result;
  for (size_t i = 0; i < map.size();) {
    const size_t from = segment_of(starts, map[i]);
    auto rows = std::make_shared<std::vector<int32_t>>();
    for (; i < map.size() && segment_of(starts, map[i]) == from; ++i) {
      rows->push_back(static_cast<int32_t>(source_row(segments[from], map[i] - starts[from])));
    }
    Segment segment = segments[from];
    segment.first_row = 0;
    segment.rows = static_cast<int64_t>(rows->size());
    segment.row_map = std::move(rows);
    result.push_back(std::move(segment));
  }
  return result;
}

}  // namespace

StorageRef storage_from_bytes(std::vector<std::byte> bytes) {
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  auto storage = std::make_shared<Storage>();
  storage->bytes = std::span(*owner);
  storage->owner = std::move(owner);
  return storage;
}

bool Constant::absent() const {
  return std::any_of(segments_.begin(), segments_.end(), [](const Segment& s) { return s.storage == nullptr; });
}

int64_t Constant::num_rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape_.size(); ++i) rows *= shape_[i];
  return rows;
}

int64_t Constant::row_elems() const { return shape_.empty() ? 1 : shape_.back(); }

size_t Constant::row_bytes() const {
  const int64_t elems = row_elems();
  if (encoding_ != nullptr) return static_cast<size_t>(elems / encoding_->block_elems * encoding_->block_bytes);
  return static_cast<size_t>(elems) * dtype_size(dtype_);
}

size_t Constant::num_bytes() const { return static_cast<size_t>(num_rows()) * row_bytes(); }

const std::byte* Constant::row(int64_t index) const {
  require(index >= 0 && index < num_rows(), Code::kInternal, "[constant] ", name_, ": row ", index, " of ", num_rows());
  const size_t i = segment_of(starts_, index);
  const Segment& segment = segments_[i];
  require(segment.storage != nullptr, Code::kFailedPrecondition, "[constant] ", name_,
          ": has no data (made from a config alone, or released once it was packed); load the weights");
  const int64_t source = source_row(segment, index - starts_[i]);
  return segment.storage->bytes.data() + segment.offset + static_cast<size_t>(source) * row_bytes();
}

const std::byte* Constant::plain_bytes() const {
  const bool plain = encoding_ == nullptr && segments_.size() == 1 && segments_[0].row_map == nullptr && !absent();
  return plain && num_rows() > 0 ? row(0) : nullptr;
}

void Constant::decode_row(int64_t index, float* out) const {
  decode_f32(dtype_, encoding_, row(index), row_elems(), out);
}

std::vector<float> Constant::to_f32() const {
  require(!absent(), Code::kFailedPrecondition, "[constant] ", name_,
          ": has no data (made from a config alone, or released once it was packed); load the weights");
  const int64_t rows = num_rows();
  const int64_t elems = row_elems();
  std::vector<float> values(static_cast<size_t>(rows * elems));
  if (values.empty()) return values;
  for (int64_t i = 0; i < rows; ++i) decode_row(i, values.data() + i * elems);
  return values;
}

void Constant::release_pages() const {
  for (const Segment& segment : segments_) {
    if (segment.storage == nullptr || !segment.storage->release_pages || segment.rows == 0) continue;
    int64_t first = segment.first_row;
    int64_t last = segment.first_row + segment.rows - 1;
    if (segment.row_map) {
      const auto begin = segment.row_map->begin() + segment.first_row;
      const auto [low, high] = std::minmax_element(begin, begin + segment.rows);
      first = *low;
      last = *high;
    }
    const std::byte* begin = segment.storage->bytes.data() + segment.offset + static_cast<size_t>(first) * row_bytes();
    segment.storage->release_pages(begin, static_cast<size_t>(last - first + 1) * row_bytes());
  }
}

void Constant::check_readable() const {
  for (const Segment& segment : segments_) {
    if (segment.storage != nullptr && segment.storage->check) segment.storage->check();
  }
}

std::shared_ptr<Constant> Constant::make(std::string name, DType dtype, const Encoding* encoding,
                                         std::vector<int64_t> shape, std::vector<Segment> segments) {
  std::shared_ptr<Constant> constant(new Constant());
  constant->name_ = std::move(name);
  constant->dtype_ = dtype;
  constant->encoding_ = encoding;
  constant->shape_ = std::move(shape);
  constant->starts_ = starts_of(segments);
  constant->segments_ = std::move(segments);
  constant->id_ = g_next_id.fetch_add(1, std::memory_order_relaxed);
  return constant;
}

ConstantRef Constant::from_storage(std::string name, DType dtype, const Encoding* encoding, std::vector<int64_t> shape,
                                   StorageRef storage, size_t offset) {
  check_shape(name, dtype, encoding, shape, Code::kDataLoss);
  require(storage != nullptr, Code::kInternal, "[constant] ", name, ": no storage");
  std::shared_ptr<Constant> constant = make(std::move(name), dtype, encoding, std::move(shape), {});
  const size_t size = storage->bytes.size();
  require(offset <= size && constant->num_bytes() <= size - offset, Code::kDataLoss, "[constant] ", constant->name_,
          ": needs ", constant->num_bytes(), " bytes at offset ", offset, ", the storage has ", size,
          "; the file is cut or its header is wrong");
  constant->segments_ = {{std::move(storage), offset, 0, constant->num_rows(), nullptr}};
  constant->starts_ = {0};
  return constant;
}

ConstantRef Constant::absent(std::string name, DType dtype, const Encoding* encoding, std::vector<int64_t> shape) {
  check_shape(name, dtype, encoding, shape, Code::kInvalidArgument);
  std::shared_ptr<Constant> constant = make(std::move(name), dtype, encoding, std::move(shape), {});
  constant->segments_ = {{nullptr, 0, 0, constant->num_rows(), nullptr}};
  constant->starts_ = {0};
  return constant;
}

ConstantRef Constant::from_f32(std::string name, std::vector<int64_t> shape, std::span<const float> values) {
  return from_storage(std::move(name), DType::kF32, nullptr, std::move(shape), storage_from_values(values), 0);
}

ConstantRef Constant::from_i32(std::string name, std::vector<int64_t> shape, std::span<const int32_t> values) {
  return from_storage(std::move(name), DType::kI32, nullptr, std::move(shape), storage_from_values(values), 0);
}

ConstantRef Constant::concat_rows(std::string name, const std::vector<ConstantRef>& parts) {
  require(!parts.empty(), Code::kInvalidArgument, "[constant] ", name, ": nothing to concatenate");
  const Constant& first = *parts.front();
  std::vector<int64_t> shape = first.shape();
  require(!shape.empty(), Code::kInvalidArgument, "[constant] ", name, ": scalars cannot be concatenated");
  shape[0] = 0;
  bool any_absent = false;
  for (const ConstantRef& part : parts) {
    const bool same_tail =
        part->shape().size() == shape.size() && std::equal(shape.begin() + 1, shape.end(), part->shape().begin() + 1);
    require(same_tail && part->dtype() == first.dtype() && part->encoding() == first.encoding(), Code::kInvalidArgument,
            "[constant] ", name, ": ", part->name(), " differs from ", first.name(),
            " in type or in a later extent; only like parts can be concatenated");
    shape[0] += part->shape()[0];
    any_absent = any_absent || part->absent();
  }
  check_shape(name, first.dtype(), first.encoding(), shape, Code::kInvalidArgument);
  if (shape.size() > 1) {
    std::vector<Segment> segments;
    for (const ConstantRef& part : parts) {
      segments.insert(segments.end(), part->segments().begin(), part->segments().end());
    }
    return make(std::move(name), first.dtype(), first.encoding(), std::move(shape), std::move(segments));
  }
  // A vector is one row, which segments cannot be parts of; biases are small, so their bytes are copied.
  if (any_absent) return absent(std::move(name), first.dtype(), first.encoding(), std::move(shape));
  std::vector<std::byte> bytes;
  for (const ConstantRef& part : parts) {
    if (part->num_bytes() == 0) continue;
    const std::byte* row = part->row(0);
    bytes.insert(bytes.end(), row, row + part->num_bytes());
  }
  return from_storage(std::move(name), first.dtype(), first.encoding(), std::move(shape),
                      storage_from_bytes(std::move(bytes)), 0);
}

namespace {

// Axis-0 selection of a vector: its elements are copied (see concat_rows).
ConstantRef permute_elements(const ConstantRef& source, const std::vector<int32_t>& map) {
  std::vector<int64_t> shape = {static_cast<int64_t>(map.size())};
  if (source->absent()) return Constant::absent(source->name(), source->dtype(), source->encoding(), std::move(shape));
  require(source->encoding() == nullptr, Code::kUnsupported, "[constant] ", source->name(),
          ": elements inside encoded blocks cannot be permuted");
  const size_t element = dtype_size(source->dtype());
  std::vector<std::byte> bytes(map.size() * element);
  for (size_t i = 0; i < map.size(); ++i) {
    std::memcpy(bytes.data() + i * element, source->row(0) + static_cast<size_t>(map[i]) * element, element);
  }
  return Constant::from_storage(source->name(), source->dtype(), nullptr, std::move(shape),
                                storage_from_bytes(std::move(bytes)), 0);
}

}  // namespace

ConstantRef Constant::permute_rows(const ConstantRef& source, std::vector<int32_t> map) {
  const std::vector<int64_t>& shape = source->shape();
  require(!shape.empty(), Code::kInvalidArgument, "[constant] ", source->name(), ": a scalar has no rows to permute");
  const int64_t rows = shape.size() == 1 ? shape[0] : source->num_rows();
  require(rows <= INT32_MAX, Code::kUnsupported, "[constant] ", source->name(), ": ", rows, " rows exceed 2^31");
  require(shape.size() <= 2 || static_cast<int64_t>(map.size()) == rows, Code::kInvalidArgument, "[constant] ",
          source->name(), ": map of ", map.size(), " for ", rows, " rows");
  for (const int32_t row : map) {
    require(row >= 0 && row < rows, Code::kInvalidArgument, "[constant] ", source->name(), ": row ", row, " of ", rows);
  }
  if (shape.size() == 1) return permute_elements(source, map);
  std::vector<int64_t> result = shape;
  if (shape.size() == 2) result[0] = static_cast<int64_t>(map.size());
  // Segments of source rows keep their source row numbers as int32.
  return make(source->name(), source->dtype(), source->encoding(), std::move(result),
              select_rows(source->segments(), map));
}

ConstantRef Constant::reinterpreted(const ConstantRef& source, DType dtype, const Encoding* encoding) {
  check_shape(source->name(), dtype, encoding, source->shape(), Code::kInvalidArgument);
  std::shared_ptr<Constant> constant = make(source->name(), dtype, encoding, source->shape(), source->segments());
  require(constant->row_bytes() == source->row_bytes(), Code::kInvalidArgument, "[constant] ", source->name(),
          ": rows of ", source->row_bytes(), " bytes read as ", constant->row_bytes());
  return constant;
}

namespace {

// dst[c, r] = src[r, c], tile by tile, so that both sides stay within few pages.
template <class Element>
void transpose_elements(const Constant& source, std::byte* dst) {
  constexpr int64_t kTile = 64;
  const int64_t rows = source.num_rows(), columns = source.row_elems();
  for (int64_t first = 0; first < rows; first += kTile) {
    const int64_t last = std::min(first + kTile, rows);
    for (int64_t left = 0; left < columns; left += kTile) {
      const int64_t right = std::min(left + kTile, columns);
      for (int64_t r = first; r < last; ++r) {
        const std::byte* from = source.row(r);
        for (int64_t c = left; c < right; ++c) {
          std::memcpy(dst + static_cast<size_t>(c * rows + r) * sizeof(Element),
                      from + static_cast<size_t>(c) * sizeof(Element), sizeof(Element));
        }
      }
    }
  }
}

ConstantRef transposed_copy(const Constant& source) {
  std::vector<int64_t> shape = {source.shape()[1], source.shape()[0]};
  if (source.absent()) return Constant::absent(source.name(), source.dtype(), nullptr, std::move(shape));
  source.check_readable();
  std::vector<std::byte> bytes(source.num_bytes());
  switch (dtype_size(source.dtype())) {
    case 1:
      transpose_elements<uint8_t>(source, bytes.data());
      break;
    case 2:
      transpose_elements<uint16_t>(source, bytes.data());
      break;
    case 4:
      transpose_elements<uint32_t>(source, bytes.data());
      break;
    default:
      transpose_elements<uint64_t>(source, bytes.data());
  }
  source.release_pages();
  return Constant::from_storage(source.name(), source.dtype(), nullptr, std::move(shape),
                                storage_from_bytes(std::move(bytes)), 0);
}

}  // namespace

ConstantRef Constant::transpose(const ConstantRef& source) {
  require(source->shape().size() == 2, Code::kInvalidArgument, "[constant] ", source->name(), ": rank ",
          source->shape().size(), ", only a matrix can be transposed");
  require(source->encoding() == nullptr, Code::kUnsupported, "[constant] ", source->name(),
          ": elements inside encoded blocks cannot be transposed");
  static std::mutex mutex;
  static std::unordered_map<uint64_t, std::weak_ptr<const Constant>> known;  // by id, both ways
  const std::lock_guard lock(mutex);
  if (const auto it = known.find(source->id()); it != known.end()) {
    if (ConstantRef transposed = it->second.lock()) return transposed;
  }
  std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
  ConstantRef transposed = transposed_copy(*source);
  known[source->id()] = transposed;
  known[transposed->id()] = source;
  return transposed;
}

void copy_dense(const Constant& constant, std::byte* to) {
  const size_t row = static_cast<size_t>(constant.row_elems()) * dtype_size(constant.dtype());
  for (int64_t i = 0; row > 0 && i < constant.num_rows(); ++i, to += row) {
    if (constant.encoding() != nullptr) {
      constant.decode_row(i, reinterpret_cast<float*>(to));
    } else {
      std::memcpy(to, constant.row(i), row);
    }
  }
}

std::shared_ptr<const std::byte> dense_bytes(const ConstantRef& constant) {
  if (const std::byte* bytes = constant->plain_bytes()) return {constant, bytes};
  const int64_t elements = constant->num_rows() * constant->row_elems();
  if (elements == 0) return nullptr;
  auto copy = std::make_shared<AlignedBuffer>(static_cast<size_t>(elements) * dtype_size(constant->dtype()),
                                              "constant " + constant->name());
  copy_dense(*constant, copy->data());
  return {copy, copy->data()};
}

void decode_f32(DType dtype, const Encoding* encoding, const std::byte* src, int64_t count, float* dst) {
  if (encoding != nullptr) return encoding->decode(src, count / encoding->block_elems, dst);
  switch (dtype) {
    case DType::kF32:
      if (count > 0) std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(float));
      return;
    case DType::kF64:
      return widen<double>(src, count, dst);
    case DType::kF16:
      return widen_half<f16_to_f32>(src, count, dst);
    case DType::kBF16:
      return widen_half<bf16_to_f32>(src, count, dst);
    case DType::kI8:
      return widen<int8_t>(src, count, dst);
    case DType::kU8:
    case DType::kBool:
      return widen<uint8_t>(src, count, dst);
    case DType::kI32:
      return widen<int32_t>(src, count, dst);
    case DType::kI64:
      return widen<int64_t>(src, count, dst);
    case DType::kState:
      break;
  }
  throw_error(Code::kInternal, "[constant] a state has no values");
}

}  // namespace atb

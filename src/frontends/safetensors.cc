// SPDX-License-Identifier: Apache-2.0
// One safetensors file: every number of the header is checked against the file before it is used.
#include "frontends/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/tensor.h"
#include "frontends/safetensors_header.h"

namespace atb {
namespace {

static_assert(std::endian::native == std::endian::little, "weight files are little endian and are used in place");

constexpr uint64_t kLengthBytes = 8;

struct TypeName {
  std::string_view name;
  DType dtype;
};
constexpr TypeName kTypes[] = {
    {"F64", DType::kF64}, {"F32", DType::kF32}, {"F16", DType::kF16}, {"BF16", DType::kBF16}, {"I64", DType::kI64},
    {"I32", DType::kI32}, {"I8", DType::kI8},   {"U8", DType::kU8},   {"BOOL", DType::kBool},
};
// Types of the format that this library has no use for yet.
constexpr std::string_view kOtherTypes[] = {"U16",     "I16",     "U32",     "U64",     "C64", "F8_E4M3",
                                            "F8_E5M2", "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4"};

DType dtype_of(const SafetensorsEntry& entry, const std::string& where) {
  for (const TypeName& type : kTypes) {
    if (type.name == entry.dtype) return type.dtype;
  }
  const bool known = std::find(std::begin(kOtherTypes), std::end(kOtherTypes), entry.dtype) != std::end(kOtherTypes);
  throw_error(known ? Code::kUnsupported : Code::kDataLoss, where, ": tensor ", entry.name, " has ",
              known ? "unsupported" : "unknown", " dtype ", entry.dtype,
              "; supported: F64, F32, F16, BF16, I64, I32, I8, U8, BOOL");
}

std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// Bytes that dtype and shape need; kDataLoss unless the declared span is exactly that.
void check_span(const SafetensorsEntry& entry, DType dtype, const std::string& where) {
  require(entry.shape.size() <= static_cast<size_t>(kMaxRank), Code::kUnsupported, where, ": tensor ", entry.name,
          " has rank ", entry.shape.size(), ", at most ", kMaxRank);
  require(entry.begin <= entry.end, Code::kDataLoss, where, ": tensor ", entry.name, " has data_offsets [", entry.begin,
          ", ", entry.end, "], which run backwards");
  int64_t needed = static_cast<int64_t>(dtype_size(dtype));
  bool overflow = false;
  for (const uint64_t extent : entry.shape) {
    overflow |= extent > uint64_t{1} << 62 || __builtin_mul_overflow(needed, extent, &needed);
  }
  require(!overflow, Code::kDataLoss, where, ": tensor ", entry.name, " has shape ", shape_text(entry.shape),
          ", more elements than 64 bits can count");
  require(static_cast<uint64_t>(needed) == entry.end - entry.begin, Code::kDataLoss, where, ": tensor ", entry.name,
          " of ", entry.dtype, " ", shape_text(entry.shape), " needs ", needed, " bytes, but data_offsets [",
          entry.begin, ", ", entry.end, "] span ", entry.end - entry.begin);
}

// The data section must be covered from its first byte to its last, each byte once.
void check_coverage(const std::vector<SafetensorsEntry>& entries, uint64_t data_bytes, const std::string& where) {
  std::vector<const SafetensorsEntry*> order;
  for (const SafetensorsEntry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return std::pair(a->begin, a->end) < std::pair(b->begin, b->end); });
  uint64_t covered = 0;
  std::string previous = "the start of the data";
  for (const SafetensorsEntry* entry : order) {
    require(entry->begin >= covered, Code::kDataLoss, where, ": tensors ", previous, " and ", entry->name,
            " overlap: ", entry->name, " begins at byte ", entry->begin, " of the data, before byte ", covered);
    require(entry->begin == covered, Code::kDataLoss, where, ": a hole of ", entry->begin - covered,
            " bytes in the data, between ", previous, " and tensor ", entry->name);
    covered = entry->end;
    previous = entry->name;
  }
  require(covered <= data_bytes, Code::kDataLoss, where, ": the file is cut: its tensors need ", covered,
          " bytes of data, it has ", data_bytes, " (", covered - data_bytes, " missing); download it again");
  require(covered == data_bytes, Code::kDataLoss, where, ": ", data_bytes - covered,
          " bytes at the end of the file belong to no tensor");
}

// Kernels read elements in place, so a tensor at an odd offset (legal, though no current writer makes one) is copied.
ConstantRef make_constant(const SafetensorsEntry& entry, DType dtype, const StorageRef& storage, uint64_t data_begin) {
  const std::vector<int64_t> shape(entry.shape.begin(), entry.shape.end());
  const uint64_t offset = data_begin + entry.begin;
  if (offset % dtype_size(dtype) == 0) {
    return Constant::from_storage(entry.name, dtype, nullptr, shape, storage, offset);
  }
  const auto bytes = storage->bytes.subspan(offset, entry.end - entry.begin);
  return Constant::from_storage(entry.name, dtype, nullptr, shape,
                                storage_from_bytes(std::vector<std::byte>(bytes.begin(), bytes.end())), 0);
}

std::string_view header_text(std::span<const std::byte> bytes, const std::string& where) {
  require(bytes.size() >= kLengthBytes, Code::kDataLoss, where, ": the file is cut: it has ", bytes.size(),
          " bytes, the header length alone takes ", kLengthBytes, " (", kLengthBytes - bytes.size(), " missing)");
  uint64_t length;
  std::memcpy(&length, bytes.data(), sizeof length);
  require(length <= kMaxSafetensorsHeader, Code::kDataLoss, where, ": header length ", length,
          " is above the limit of ", kMaxSafetensorsHeader, " bytes; is this a safetensors file?");
  const uint64_t left = bytes.size() - kLengthBytes;
  require(length <= left, Code::kDataLoss, where, ": the file is cut: the header needs ", length,
          " bytes, the file has ", left, " after the length (", length - left, " missing); download it again");
  require(length >= 2, Code::kDataLoss, where, ": header length ", length, ", at least 2 (an empty JSON object)");
  const auto* text = reinterpret_cast<const char*>(bytes.data() + kLengthBytes);
  require(text[0] == '{', Code::kDataLoss, where, ": the header does not start with '{'");
  return {text, length};
}

}  // namespace

Safetensors read_safetensors(const std::filesystem::path& path) {
  return read_safetensors(MappedFile::open(path, "[safetensors]"));
}

Safetensors read_safetensors(const std::shared_ptr<const MappedFile>& file) {
  const std::string where = "[safetensors] " + file->path().string();
  const std::string_view json = header_text(file->bytes(), where);
  SafetensorsHeader header = parse_safetensors_header(json, where);

  const uint64_t data_begin = kLengthBytes + json.size();
  std::vector<DType> dtypes;
  for (const SafetensorsEntry& entry : header.entries) {
    dtypes.push_back(dtype_of(entry, where));
    check_span(entry, dtypes.back(), where);
  }
  check_coverage(header.entries, file->bytes().size() - data_begin, where);

  Safetensors result;
  const StorageRef storage = file->storage();
  for (size_t i = 0; i < header.entries.size(); ++i) {
    const SafetensorsEntry& entry = header.entries[i];
    result.tensors.emplace(entry.name, make_constant(entry, dtypes[i], storage, data_begin));
  }
  result.metadata = std::move(header.metadata);
  result.files.push_back(file->path());
  result.file_bytes = file->bytes().size();
  return result;
}

}  // namespace atb

// SPDX-License-Identifier: Apache-2.0
// GGUF: header, metadata, tensor descriptions, and the rules that tie tensor data to the file.
#include "frontends/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "frontends/gguf_reader.h"
#include "frontends/gguf_types.h"

namespace atb {
namespace {

constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kMaxKeyBytes = 65535;     // of the format
constexpr uint64_t kDefaultAlignment = 32;   // of the format
constexpr uint64_t kMaxAlignment = 1 << 20;  // ours: far above any page or sector
constexpr uint64_t kMinKeyValueBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

struct TensorInfo {
  std::string name;
  const GgufTensorType* type = nullptr;  // null: a number that is not known
  uint32_t type_id = 0;
  std::vector<int64_t> shape;  // row-major
  uint64_t offset = 0;         // in the data section
  uint64_t bytes = 0;
};

void read_header(GgufReader& reader, Gguf& gguf, uint64_t& tensors, uint64_t& pairs) {
  const auto magic = reader.take(4, "the magic number");
  if (std::memcmp(magic.data(), "GGUF", 4) != 0) reader.fail("does not start with the letters GGUF: not a GGUF file");
  gguf.version = reader.number<uint32_t>("the version");
  require((gguf.version & 0xffffu) != 0, Code::kUnsupported, reader.where(), ": a big-endian file; convert it to ",
          "little endian");
  require(gguf.version == 2 || gguf.version == 3, Code::kUnsupported, reader.where(), ": GGUF version ", gguf.version,
          "; supported: 2 and 3");
  tensors = reader.number<uint64_t>("the tensor count");
  pairs = reader.number<uint64_t>("the metadata count");
  reader.check_count(tensors, kMinTensorBytes, "the tensors");
  reader.check_count(pairs, kMinKeyValueBytes, "the metadata");
}

void read_metadata(GgufReader& reader, uint64_t pairs, GgufMetadata& metadata) {
  for (uint64_t i = 0; i < pairs; ++i) {
    const std::string_view key = reader.string("a metadata key");
    if (key.empty()) reader.fail("metadata key ", i, " is empty");
    if (key.size() > kMaxKeyBytes)
      reader.fail("metadata key ", i, " has ", key.size(), " bytes, at most ", kMaxKeyBytes);
    const GgufType type = reader.type(key);
    if (!metadata.add(key, reader.value(type, key))) reader.fail("metadata key ", key, " appears twice");
  }
}

uint64_t read_alignment(const GgufReader& reader, const GgufMetadata& metadata) {
  const GgufValue* value = metadata.find("general.alignment");
  if (value == nullptr) return kDefaultAlignment;
  if (value->type != GgufType::kU32) {
    reader.fail("general.alignment is of type ", gguf_type_name(value->type), ", must be u32");
  }
  const uint64_t alignment = std::get<uint64_t>(value->value);
  if (alignment < 8 || alignment > kMaxAlignment || !std::has_single_bit(alignment)) {
    reader.fail("general.alignment is ", alignment, ", must be a power of two from 8 to ", kMaxAlignment);
  }
  return alignment;
}

// Row-major shape; the file lists the fastest dimension first.
std::vector<int64_t> read_shape(GgufReader& reader, const std::string& tensor) {
  const auto dims = reader.number<uint32_t>("the rank of " + tensor);
  if (dims < 1 || dims > kMaxDims) {
    reader.fail("tensor ", tensor, " has ", dims, " dimensions, must have 1 to ", kMaxDims);
  }
  std::vector<int64_t> shape(dims);
  int64_t elements = 1;
  for (uint32_t i = dims; i-- > 0;) {
    const auto extent = reader.number<uint64_t>("a dimension of " + tensor);
    if (extent == 0 || extent > uint64_t{INT64_MAX}) {
      reader.fail("tensor ", tensor, " has a dimension of ", extent, ", must be 1 to 2^63 - 1");
    }
    shape[i] = static_cast<int64_t>(extent);
    if (__builtin_mul_overflow(elements, shape[i], &elements) || elements > INT64_MAX / 8) {
      reader.fail("tensor ", tensor, " has more elements than the file format can hold");
    }
  }
  return shape;
}

// Bytes of the tensor, 0 where its type is not known; rows must be whole blocks.
uint64_t tensor_bytes(const TensorInfo& info, const GgufReader& reader) {
  if (info.type == nullptr) return 0;
  uint64_t elements = 1;
  for (const int64_t extent : info.shape) elements *= static_cast<uint64_t>(extent);
  if (static_cast<uint64_t>(info.shape.back()) % info.type->block_elems != 0) {
    reader.fail("tensor ", info.name, " of type ", info.type->name, " has rows of ", info.shape.back(),
                " values, must be a multiple of ", info.type->block_elems);
  }
  return elements / info.type->block_elems * info.type->block_bytes;
}

std::vector<TensorInfo> read_tensor_infos(GgufReader& reader, uint64_t count) {
  std::vector<TensorInfo> infos(count);
  for (TensorInfo& info : infos) {
    info.name = std::string(reader.string("a tensor name"));
    if (info.name.empty()) reader.fail("a tensor has an empty name");
    info.shape = read_shape(reader, info.name);
    info.type_id = reader.number<uint32_t>("the type of " + info.name);
    info.type = find_gguf_tensor_type(info.type_id);
    info.offset = reader.number<uint64_t>("the offset of " + info.name);
    info.bytes = tensor_bytes(info, reader);
  }
  return infos;
}

void check_placement(const std::vector<TensorInfo>& infos, uint64_t alignment, uint64_t data_bytes,
                     const GgufReader& reader) {
  std::vector<const TensorInfo*> order;
  for (const TensorInfo& info : infos) order.push_back(&info);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
  const TensorInfo* previous = nullptr;
  for (const TensorInfo* info : order) {
    if (info->offset % alignment != 0) {
      reader.fail("tensor ", info->name, " is at offset ", info->offset, ", not a multiple of the alignment ",
                  alignment);
    }
    if (info->offset > data_bytes || info->bytes > data_bytes - info->offset) {
      reader.fail("the file is cut: tensor ", info->name, " needs ", info->bytes, " bytes at offset ", info->offset,
                  " of the data, which has ", data_bytes, "; download it again");
    }
    if (previous != nullptr && info->offset < previous->offset + previous->bytes) {
      reader.fail("tensors ", previous->name, " and ", info->name, " overlap");
    }
    previous = info;
  }
}

std::string type_name(const TensorInfo& info) {
  return info.type != nullptr ? info.type->name : "number " + std::to_string(info.type_id);
}

void add_tensors(const std::vector<TensorInfo>& infos, uint64_t data_begin, const GgufReader& reader, Gguf& gguf) {
  const StorageRef storage = gguf.file->storage();
  std::set<std::string_view> names;
  for (const TensorInfo& info : infos) {
    if (!names.insert(info.name).second) reader.fail("the tensor name ", info.name, " appears twice");
    if (info.type == nullptr || !info.type->decodable) {
      gguf.undecodable.push_back({info.name, type_name(info), info.shape, info.bytes});
      continue;
    }
    const Encoding* encoding = info.type->encoding != nullptr ? find_encoding(info.type->encoding) : nullptr;
    gguf.tensors.emplace(info.name, Constant::from_storage(info.name, info.type->dtype, encoding, info.shape, storage,
                                                           data_begin + info.offset));
  }
}

}  // namespace

Gguf read_gguf(const std::filesystem::path& path) { return read_gguf(MappedFile::open(path, "[gguf]")); }

Gguf read_gguf(std::shared_ptr<const MappedFile> file) {
  Gguf gguf;
  gguf.file = std::move(file);
  GgufReader reader(gguf.file->bytes(), "[gguf] " + gguf.file->path().string());
  uint64_t tensors = 0, pairs = 0;
  read_header(reader, gguf, tensors, pairs);
  read_metadata(reader, pairs, gguf.metadata);
  const uint64_t alignment = read_alignment(reader, gguf.metadata);
  reader.check_count(tensors, kMinTensorBytes, "the tensors");
  const std::vector<TensorInfo> infos = read_tensor_infos(reader, tensors);

  const uint64_t data_begin = (reader.position() + alignment - 1) / alignment * alignment;
  const uint64_t file_bytes = gguf.file->bytes().size();
  check_placement(infos, alignment, file_bytes > data_begin ? file_bytes - data_begin : 0, reader);
  add_tensors(infos, data_begin, reader, gguf);
  return gguf;
}

void require_decodable(const Gguf& gguf) {
  if (gguf.undecodable.empty()) return;
  const GgufUndecodable& first = gguf.undecodable.front();
  throw_error(Code::kUnsupported, "[gguf] ", gguf.file->path().string(), ": tensor ", first.name, " is of type ",
              first.type, ", ", gguf.undecodable.size(), " of ", gguf.undecodable.size() + gguf.tensors.size(),
              " tensors have a type that is not supported; supported: F32, F16, BF16, Q8_0, Q4_0, Q4_1; use a file ",
              "of these");
}

const std::vector<int64_t>* find_shape(const Gguf& gguf, std::string_view name) {
  const auto found = gguf.tensors.find(name);
  if (found != gguf.tensors.end()) return &found->second->shape();
  for (const GgufUndecodable& tensor : gguf.undecodable) {
    if (tensor.name == name) return &tensor.shape;
  }
  return nullptr;
}

bool is_gguf_file(const std::filesystem::path& path) {
  std::array<char, 4> magic{};
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::ifstream file(path, std::ios::binary);
  return file.read(magic.data(), magic.size()) && std::memcmp(magic.data(), "GGUF", 4) == 0;
}

}  // namespace atb

// SPDX-License-Identifier: Apache-2.0
// GGUF: header, metadata, tensor descriptions, and the rules that tie tensor data to the file.
#include "frontends/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "frontends/gguf_reader.h"

namespace atb {
namespace {

constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kMaxKeyBytes = 65535;     // of the format
constexpr uint64_t kDefaultAlignment = 32;   // of the format
constexpr uint64_t kMaxAlignment = 1 << 20;  // ours: far above any page or sector
constexpr uint64_t kMinKeyValueBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

struct TensorType {
  uint32_t id;
  const char* name;
  DType dtype;           // for supported plain types
  const char* encoding;  // for supported block types
  bool supported;
};
constexpr TensorType kTensorTypes[] = {
    {0, "F32", DType::kF32, nullptr, true},      {1, "F16", DType::kF16, nullptr, true},
    {30, "BF16", DType::kBF16, nullptr, true},   {8, "Q8_0", DType::kF32, "q8_0", true},
    {2, "Q4_0", DType::kF32, "q4_0", true},      {3, "Q4_1", DType::kF32, "q4_1", true},
    {6, "Q5_0", DType::kF32, nullptr, false},    {7, "Q5_1", DType::kF32, nullptr, false},
    {9, "Q8_1", DType::kF32, nullptr, false},    {10, "Q2_K", DType::kF32, nullptr, false},
    {11, "Q3_K", DType::kF32, nullptr, false},   {12, "Q4_K", DType::kF32, nullptr, false},
    {13, "Q5_K", DType::kF32, nullptr, false},   {14, "Q6_K", DType::kF32, nullptr, false},
    {15, "Q8_K", DType::kF32, nullptr, false},   {16, "IQ2_XXS", DType::kF32, nullptr, false},
    {17, "IQ2_XS", DType::kF32, nullptr, false}, {18, "IQ3_XXS", DType::kF32, nullptr, false},
    {19, "IQ1_S", DType::kF32, nullptr, false},  {20, "IQ4_NL", DType::kF32, nullptr, false},
    {21, "IQ3_S", DType::kF32, nullptr, false},  {22, "IQ2_S", DType::kF32, nullptr, false},
    {23, "IQ4_XS", DType::kF32, nullptr, false}, {24, "I8", DType::kI8, nullptr, false},
    {25, "I16", DType::kF32, nullptr, false},    {26, "I32", DType::kI32, nullptr, false},
    {27, "I64", DType::kI64, nullptr, false},    {28, "F64", DType::kF64, nullptr, false},
    {29, "IQ1_M", DType::kF32, nullptr, false},  {34, "TQ1_0", DType::kF32, nullptr, false},
    {35, "TQ2_0", DType::kF32, nullptr, false},  {39, "MXFP4", DType::kF32, nullptr, false},
};

struct TensorInfo {
  std::string name;
  const TensorType* type = nullptr;
  std::vector<int64_t> shape;  // row-major
  uint64_t offset = 0;         // in the data section
  uint64_t bytes = 0;
};

const TensorType& find_tensor_type(uint32_t id, const std::string& tensor, const GgufReader& reader) {
  const auto found = std::find_if(std::begin(kTensorTypes), std::end(kTensorTypes),
                                  [id](const TensorType& type) { return type.id == id; });
  if (found != std::end(kTensorTypes) && found->supported) return *found;
  const std::string name = found != std::end(kTensorTypes) ? found->name : "number " + std::to_string(id);
  throw_error(Code::kUnsupported, reader.where(), ": tensor ", tensor, " is of type ", name,
              "; supported: F32, F16, BF16, Q8_0, Q4_0, Q4_1; use a file of one of these");
}

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

// Bytes of the tensor; rows must be whole blocks.
uint64_t tensor_bytes(const TensorInfo& info, const GgufReader& reader) {
  int64_t elements = 1;
  for (const int64_t extent : info.shape) elements *= extent;
  if (info.type->encoding == nullptr) return static_cast<uint64_t>(elements) * dtype_size(info.type->dtype);
  const Encoding* encoding = find_encoding(info.type->encoding);
  if (info.shape.back() % encoding->block_elems != 0) {
    reader.fail("tensor ", info.name, " of type ", info.type->name, " has rows of ", info.shape.back(),
                " values, must be a multiple of ", encoding->block_elems);
  }
  return static_cast<uint64_t>(elements / encoding->block_elems * encoding->block_bytes);
}

std::vector<TensorInfo> read_tensor_infos(GgufReader& reader, uint64_t count) {
  std::vector<TensorInfo> infos(count);
  for (TensorInfo& info : infos) {
    info.name = std::string(reader.string("a tensor name"));
    if (info.name.empty()) reader.fail("a tensor has an empty name");
    info.shape = read_shape(reader, info.name);
    info.type = &find_tensor_type(reader.number<uint32_t>("the type of " + info.name), info.name, reader);
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

}  // namespace

Gguf read_gguf(const std::filesystem::path& path) {
  Gguf gguf;
  gguf.file = MappedFile::open(path, "[gguf]");
  GgufReader reader(gguf.file->bytes(), "[gguf] " + path.string());
  uint64_t tensors = 0, pairs = 0;
  read_header(reader, gguf, tensors, pairs);
  read_metadata(reader, pairs, gguf.metadata);
  const uint64_t alignment = read_alignment(reader, gguf.metadata);
  reader.check_count(tensors, kMinTensorBytes, "the tensors");
  const std::vector<TensorInfo> infos = read_tensor_infos(reader, tensors);

  const uint64_t data_begin = (reader.position() + alignment - 1) / alignment * alignment;
  const uint64_t file_bytes = gguf.file->bytes().size();
  check_placement(infos, alignment, file_bytes > data_begin ? file_bytes - data_begin : 0, reader);

  const StorageRef storage = gguf.file->storage();
  for (const TensorInfo& info : infos) {
    const Encoding* encoding = info.type->encoding != nullptr ? find_encoding(info.type->encoding) : nullptr;
    ConstantRef constant =
        Constant::from_storage(info.name, info.type->dtype, encoding, info.shape, storage, data_begin + info.offset);
    if (!gguf.tensors.emplace(info.name, std::move(constant)).second) {
      reader.fail("the tensor name ", info.name, " appears twice");
    }
  }
  return gguf;
}

bool is_gguf_file(const std::filesystem::path& path) {
  std::array<char, 4> magic{};
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::ifstream file(path, std::ios::binary);
  return file.read(magic.data(), magic.size()) && std::memcmp(magic.data(), "GGUF", 4) == 0;
}

}  // namespace atb

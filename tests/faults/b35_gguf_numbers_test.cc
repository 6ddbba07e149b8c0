// SPDX-License-Identifier: Apache-2.0
// B35: numbers of a GGUF file trusted: division by a dimension or alignment of 0, a fixed array overrun, hangs and
// unbounded memory on huge counts.
#include <gtest/gtest.h>

#include "faults/file_limits.h"
#include "frontends/gguf.h"
#include "models/inspect.h"
#include "models/model.h"
#include "models/tiny_models.h"

namespace atb {
namespace {

using testing::as_bytes;
using testing::GgufWriter;
using testing::TempDir;
using testing::TinyLlama;

constexpr uint64_t kHuge = uint64_t{1} << 63;

// All ways in: the file by itself, a listing of it, and a model.
void expect_refused(const std::string& bytes, const std::string& first, const std::string& second) {
  const TempDir dir;
  const auto file = dir.write("m.gguf", bytes);
  testing::expect_frugal([&] {
    EXPECT_ATB_ERROR(read_gguf(file), Code::kDataLoss, "[gguf]", "m.gguf", first, second);
    EXPECT_ATB_ERROR(inspect_json(file), Code::kDataLoss, first, second);
    EXPECT_ATB_ERROR(load_model(file), Code::kDataLoss, first, second);
  });
}

std::string tensor(const std::vector<int64_t>& shape) {
  return GgufWriter().tensor_at("w", shape, 0, 0).bytes() + std::string(64, '\0');
}

std::string header(uint64_t tensors, uint64_t pairs) {
  return "GGUF" + as_bytes(uint32_t{3}) + as_bytes(tensors) + as_bytes(pairs);
}

TEST(B35, Dimensions) {
  expect_refused(tensor({0}), "tensor w", "dimension of 0");
  expect_refused(tensor({4, 0}), "tensor w", "dimension of 0");
  expect_refused(tensor({}), "tensor w", "0 dimensions");
  expect_refused(tensor(std::vector<int64_t>(9, 1)), "tensor w", "9 dimensions");
  const std::string many = GgufWriter::string("w") + as_bytes(~uint32_t{0});
  expect_refused(header(1, 0) + many + std::string(64, '\0'), "tensor w", "4294967295 dimensions");
}

TEST(B35, EmptyKey) { expect_refused(GgufWriter().u32("", 1).bytes(), "metadata key 0", "is empty"); }

TEST(B35, Alignment) {
  for (const uint32_t alignment : {0u, 3u, 1u << 31}) {
    expect_refused(GgufWriter().u32("general.alignment", alignment).bytes(),
                   "general.alignment is " + std::to_string(alignment), "power of two");
  }
  expect_refused(GgufWriter().raw("general.alignment", 5, as_bytes(int32_t{32})).bytes(), "general.alignment",
                 "of type i32, must be u32");
}

TEST(B35, Lengths) {
  const std::string pair = header(0, 1) + GgufWriter::string("k");
  expect_refused(pair + as_bytes(uint32_t{8}) + as_bytes(kHuge), "k", "9223372036854775808");
  expect_refused(header(0, 1) + as_bytes(kHuge) + std::string(8, 'k'), "a metadata key", "9223372036854775808");
  // An array of 2^63 in a file of 43 bytes, of each kind of element.
  for (uint32_t type = 0; type < kGgufTypes; ++type) {
    const std::string array = as_bytes(uint32_t{9}) + as_bytes(type) + as_bytes(kHuge);
    const std::string file = header(0, 1) + GgufWriter::string("kk") + array;
    expect_refused(file.substr(0, 43), "kk", "cut");
    expect_refused(file + std::string(64, '\0'), "kk", "a count of 9223372036854775808");
  }
}

TEST(B35, Counts) {
  const std::string pad(64, '\0');
  for (const uint64_t count : {kHuge, kHuge - 1, ~uint64_t{0}, uint64_t{1} << 32}) {
    expect_refused(header(count, 0) + pad, "the tensors", std::to_string(count));
    expect_refused(header(0, count) + pad, "the metadata", std::to_string(count));
  }
}

TEST(B35, BlockCount) {
  const TempDir dir;
  testing::expect_frugal([&] {
    for (const uint32_t layers : {0u, 513u, 100'000'000u, ~0u}) {
      TinyLlama model;
      model.layers = layers;
      GgufWriter writer = model.gguf_header();
      model.layers = 1;
      model.fill().add_gguf_tensors(writer);
      const auto file = dir.write("m.gguf", writer.bytes());
      const std::string text = "llama.block_count is " + std::to_string(layers);
      EXPECT_ATB_ERROR(load_model(file), Code::kInvalidArgument, text, "1 to 512");
      EXPECT_ATB_ERROR(inspect_json(file), Code::kInvalidArgument, text);
      EXPECT_ATB_ERROR(build_from_config(file), Code::kInvalidArgument, text);
    }
  });
}

}  // namespace
}  // namespace atb

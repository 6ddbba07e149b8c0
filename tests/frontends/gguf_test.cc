// SPDX-License-Identifier: Apache-2.0
// GGUF: good files of both versions, and every count, length and offset that cannot be.
#include "frontends/gguf.h"

#include <gtest/gtest.h>

#include "frontends/file_writers.h"

namespace atb {
namespace {

using testing::as_bytes;
using testing::f32_bytes;
using testing::GgufId;
using testing::GgufWriter;
using testing::TempDir;

constexpr uint64_t kHuge = uint64_t{1} << 63;

template <class... Texts>
void expect_refused(const std::string& bytes, Code code, Texts... texts) {
  const TempDir dir;
  const auto file = dir.write("m.gguf", bytes);
  EXPECT_ATB_ERROR(read_gguf(file), code, "[gguf]", "m.gguf", texts...);
}

// Magic, version 3, counts.
std::string header(uint64_t tensors, uint64_t pairs) {
  return "GGUF" + as_bytes(uint32_t{3}) + as_bytes(tensors) + as_bytes(pairs);
}

TEST(Gguf, ReadsBothVersionsAndAllTensorTypes) {
  std::vector<float> values(64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) - 20.0f;
  for (const uint32_t version : {2u, 3u}) {
    const TempDir dir;
    GgufWriter writer(version);
    writer.text("general.architecture", "llama").u32("n", 3);
    writer.f32_tensor("f32", {2, 32}, values);
    writer.tensor("f16", {2}, GgufId::kF16, as_bytes(uint16_t{0x3c00}) + as_bytes(uint16_t{0xc000}));
    writer.tensor("bf16", {1}, GgufId::kBF16, as_bytes(uint16_t{0x3fc0}));
    writer.encoded_tensor("q8", {2, 32}, GgufId::kQ8_0, "q8_0", values);
    writer.encoded_tensor("q40", {2, 32}, GgufId::kQ4_0, "q4_0", values);
    writer.encoded_tensor("q41", {1, 64}, GgufId::kQ4_1, "q4_1", values);
    const Gguf gguf = read_gguf(dir.write("m.gguf", writer.bytes()));
    EXPECT_EQ(gguf.version, version);
    EXPECT_EQ(gguf.metadata.text("general.architecture"), "llama");
    EXPECT_EQ(gguf.metadata.integer("n"), 3);
    EXPECT_EQ(gguf.tensors.at("f32")->to_f32(), values);
    EXPECT_EQ(gguf.tensors.at("f32")->shape(), (std::vector<int64_t>{2, 32}));  // dimensions reversed
    EXPECT_EQ(gguf.tensors.at("f16")->to_f32(), (std::vector<float>{1, -2}));
    EXPECT_EQ(gguf.tensors.at("bf16")->to_f32(), std::vector<float>{1.5f});
    EXPECT_EQ(gguf.tensors.at("q41")->shape(), (std::vector<int64_t>{1, 64}));
    for (const char* name : {"q8", "q40", "q41"}) {
      const std::vector<float> decoded = gguf.tensors.at(name)->to_f32();
      for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(decoded[i], values[i], 5.0f) << name << " " << i;
    }
  }
}

TEST(Gguf, ReadsEveryMetadataType) {
  const TempDir dir;
  GgufWriter writer;
  writer.raw("u8", 0, as_bytes(uint8_t{200}))
      .raw("i8", 1, as_bytes(int8_t{-3}))
      .raw("u16", 2, as_bytes(uint16_t{60000}));
  writer.raw("i16", 3, as_bytes(int16_t{-300})).raw("i32", 5, as_bytes(int32_t{-70000}));
  writer.raw("u64", 10, as_bytes(uint64_t{1} << 40)).raw("i64", 11, as_bytes(-(int64_t{1} << 40)));
  writer.f32("f32", 1e-5f).raw("f64", 12, as_bytes(0.25)).boolean("yes", true).text("t", "a\0b");
  writer.strings("words", {"x", "", "yz"});
  writer.raw("ints", 9, as_bytes(uint32_t{5}) + as_bytes(uint64_t{2}) + as_bytes(int32_t{-1}) + as_bytes(int32_t{7}));
  writer.raw(
      "nested", 9,
      as_bytes(uint32_t{9}) + as_bytes(uint64_t{1}) + as_bytes(uint32_t{6}) + as_bytes(uint64_t{1}) + as_bytes(1.5f));
  const Gguf gguf = read_gguf(dir.write("m.gguf", writer.bytes()));
  const GgufMetadata& m = gguf.metadata;
  EXPECT_EQ(m.integer("u8"), 200);
  EXPECT_EQ(m.integer("i8"), -3);
  EXPECT_EQ(m.integer("u16"), 60000);
  EXPECT_EQ(m.integer("i16"), -300);
  EXPECT_EQ(m.integer("i32"), -70000);
  EXPECT_EQ(m.integer("u64"), int64_t{1} << 40);
  EXPECT_EQ(m.integer("i64"), -(int64_t{1} << 40));
  EXPECT_EQ(m.real("f32"), 1e-5);  // the decimal, not the widened f32
  EXPECT_EQ(m.real("f64"), 0.25);
  EXPECT_EQ(m.real("u8"), 200.0);
  EXPECT_EQ(m.boolean("yes"), true);
  EXPECT_EQ(m.array("words")->strings, (std::vector<std::string_view>{"x", "", "yz"}));
  EXPECT_EQ(m.array("ints")->integer(0), -1);
  EXPECT_EQ(m.array("ints")->number(1), 7.0);
  EXPECT_EQ(m.array("nested")->arrays.at(0).number(0), 1.5);
  EXPECT_EQ(m.integer("absent"), std::nullopt);
  EXPECT_ATB_ERROR(m.integer("t"), Code::kDataLoss, "metadata t", "string", "integer");
  EXPECT_ATB_ERROR(m.array("ints")->integer(2), Code::kInternal, "element 2");
}

TEST(Gguf, HeaderIsChecked) {
  expect_refused("", Code::kDataLoss, "cut");
  expect_refused("GG", Code::kDataLoss, "cut");
  expect_refused("JUNKJUNKJUNKJUNKJUNKJUNK", Code::kDataLoss, "not a GGUF file");
  expect_refused("GGUF" + as_bytes(uint32_t{1}) + std::string(16, '\0'), Code::kUnsupported, "version 1", "2 and 3");
  expect_refused("GGUF" + as_bytes(uint32_t{4}) + std::string(16, '\0'), Code::kUnsupported, "version 4");
  expect_refused("GGUF" + as_bytes(uint32_t{0x03000000}) + std::string(16, '\0'), Code::kUnsupported, "big-endian");
  expect_refused(header(0, 0).substr(0, 20), Code::kDataLoss, "cut");
  expect_refused(header(kHuge, 0), Code::kDataLoss, "9223372036854775808");
  expect_refused(header(0, kHuge), Code::kDataLoss, "9223372036854775808");
  expect_refused(header(0, 1), Code::kDataLoss, "metadata");
}

TEST(Gguf, MetadataIsChecked) {
  const auto with = [](std::string_view key, uint32_t type, const std::string& value) {
    return GgufWriter().raw(key, type, value).bytes();
  };
  const std::string pad(64, '\0');
  expect_refused(with("", 4, as_bytes(uint32_t{1})), Code::kDataLoss, "empty");
  expect_refused(with("k", 13, pad), Code::kDataLoss, "type 13");
  expect_refused(with("k", 8, as_bytes(kHuge) + pad), Code::kDataLoss, "k", "9223372036854775808");
  expect_refused(with("k", 9, as_bytes(uint32_t{4}) + as_bytes(kHuge) + pad), Code::kDataLoss, "9223372036854775808");
  expect_refused(with("k", 9, as_bytes(uint32_t{8}) + as_bytes(kHuge) + pad), Code::kDataLoss, "9223372036854775808");
  expect_refused(with("k", 9, as_bytes(uint32_t{9}) + as_bytes(kHuge) + pad), Code::kDataLoss, "9223372036854775808");
  expect_refused(with("k", 9, as_bytes(uint32_t{99}) + as_bytes(uint64_t{1}) + pad), Code::kDataLoss, "type 99");
  std::string nested;
  for (int i = 0; i < 1000; ++i) nested += as_bytes(uint32_t{9}) + as_bytes(uint64_t{1});
  expect_refused(with("k", 9, nested), Code::kDataLoss, "nested");
  expect_refused(GgufWriter().u32("k", 1).u32("k", 2).bytes(), Code::kDataLoss, "k appears twice");
  // An array length of 2^63 in a file of 43 bytes.
  const std::string small = header(0, 1) + GgufWriter::string("k") + as_bytes(uint32_t{9}) + as_bytes(uint32_t{0});
  expect_refused((small + as_bytes(kHuge)).substr(0, 43 + 14), Code::kDataLoss, "[gguf]");
}

TEST(Gguf, AlignmentIsChecked) {
  const auto aligned = [](uint32_t value) { return GgufWriter().u32("general.alignment", value).bytes(); };
  for (const uint32_t bad : {0u, 1u, 3u, 24u, 1u << 31}) {
    expect_refused(aligned(bad), Code::kDataLoss, "general.alignment is " + std::to_string(bad));
  }
  expect_refused(GgufWriter().raw("general.alignment", 5, as_bytes(int32_t{32})).bytes(), Code::kDataLoss,
                 "general.alignment", "i32");
  const TempDir dir;
  GgufWriter writer;
  writer.u32("general.alignment", 8).f32_tensor("a", {2}, {1, 2});
  // The writer pads the header to 32, which is past the next multiple of 8: place the data by hand.
  std::string bytes = writer.bytes();
  const size_t info_end = 24 + 8 + 17 + 4 + 4 + (8 + 1 + 4 + 8 + 4 + 8);
  bytes = bytes.substr(0, (info_end + 7) / 8 * 8) + f32_bytes({1, 2});
  EXPECT_EQ(read_gguf(dir.write("m.gguf", bytes)).tensors.at("a")->to_f32(), (std::vector<float>{1, 2}));
}

TEST(Gguf, TensorsAreChecked) {
  const auto at = [](const std::vector<int64_t>& shape, uint32_t type, uint64_t offset) {
    return GgufWriter().tensor_at("w", shape, type, offset).bytes() + std::string(256, '\0');
  };
  expect_refused(at({0, 4}, 0, 0), Code::kDataLoss, "tensor w", "dimension of 0");
  expect_refused(at({-1}, 0, 0), Code::kDataLoss, "18446744073709551615");
  expect_refused(at({}, 0, 0), Code::kDataLoss, "0 dimensions");
  expect_refused(at({1, 1, 1, 1, 1, 1, 1, 1, 1}, 0, 0), Code::kDataLoss, "9 dimensions");
  expect_refused(at({int64_t{1} << 40, int64_t{1} << 40}, 0, 0), Code::kDataLoss, "more elements");
  expect_refused(at({4}, 14, 0), Code::kDataLoss, "tensor w", "Q6_K", "multiple of 256");
  expect_refused(at({512}, 14, 0), Code::kDataLoss, "cut", "needs 420 bytes");
  expect_refused(at({2, 33}, 8, 0), Code::kDataLoss, "33", "multiple of 32");
  expect_refused(at({4}, 0, 8), Code::kDataLoss, "offset 8", "alignment 32");
  expect_refused(at({64}, 0, 32), Code::kDataLoss, "cut", "needs 256 bytes");
  expect_refused(at({4}, 0, kHuge), Code::kDataLoss, "cut");
  expect_refused(at({4}, 0, ~uint64_t{31}), Code::kDataLoss, "cut");
  expect_refused(GgufWriter().tensor_at("a", {16}, 0, 0).tensor_at("b", {16}, 0, 32).bytes() + std::string(128, '\0'),
                 Code::kDataLoss, "a and b overlap");
  expect_refused(GgufWriter().f32_tensor("a", {1}, {1}).f32_tensor("a", {1}, {2}).bytes(), Code::kDataLoss, "twice");
  expect_refused(GgufWriter().tensor_at("", {1}, 0, 0).bytes(), Code::kDataLoss, "empty name");
}

TEST(Gguf, TypesThatCannotBeDecodedAreListedAndRefusedByName) {
  const TempDir dir;
  GgufWriter writer;
  writer.f32_tensor("a", {1}, {1}).tensor("k", {1, 256}, GgufId::kQ6_K, std::string(210, 'x'));
  writer.tensor_at("new", {4}, 77, 256);
  const Gguf file = read_gguf(dir.write("m.gguf", writer.bytes() + std::string(64, '\0')));
  EXPECT_EQ(file.tensors.size(), 1u);
  ASSERT_EQ(file.undecodable.size(), 2u);
  EXPECT_EQ(file.undecodable[0].type, "Q6_K");
  EXPECT_EQ(file.undecodable[0].bytes, 210u);
  EXPECT_EQ(file.undecodable[1].type, "number 77");
  EXPECT_EQ(*find_shape(file, "k"), (std::vector<int64_t>{1, 256}));
  EXPECT_EQ(*find_shape(file, "a"), std::vector<int64_t>{1});
  EXPECT_EQ(find_shape(file, "absent"), nullptr);
  EXPECT_ATB_ERROR(require_decodable(file), Code::kUnsupported, "tensor k", "Q6_K", "2 of 3", "Q8_0");
}

TEST(Gguf, EveryCutOfAFileIsAnError) {
  GgufWriter writer;
  writer.text("general.architecture", "llama").strings("words", {"a", "bc"}).f32_tensor("w", {3}, {1, 2, 3});
  const std::string whole = writer.bytes();
  const TempDir dir;
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_ATB_ERROR(read_gguf(dir.write("m.gguf", whole.substr(0, size))), Code::kDataLoss, "[gguf]");
  }
  EXPECT_EQ(read_gguf(dir.write("m.gguf", whole)).tensors.size(), 1u);
}

TEST(Gguf, RecognisesItsFiles) {
  const TempDir dir;
  EXPECT_TRUE(is_gguf_file(dir.write("m.bin", GgufWriter().bytes())));
  EXPECT_FALSE(is_gguf_file(dir.write("n.gguf", "GGU")));
  EXPECT_FALSE(is_gguf_file(dir / "absent"));
  EXPECT_FALSE(is_gguf_file(dir.path()));
}

}  // namespace
}  // namespace atb

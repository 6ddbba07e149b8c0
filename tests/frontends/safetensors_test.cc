// SPDX-License-Identifier: Apache-2.0
// Safetensors: good files, and every way in which a file can lie.
#include "frontends/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "frontends/file_writers.h"

namespace atb {
namespace {

using testing::as_bytes;
using testing::f32_bytes;
using testing::safetensors_file;
using testing::SafetensorsWriter;
using testing::TempDir;

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

// Expects read_safetensors of these bytes to be refused with these texts in the message.
template <class... Texts>
void expect_refused(const std::string& bytes, Code code, Texts... texts) {
  const TempDir dir;
  const auto file = dir.write("a.safetensors", bytes);
  EXPECT_ATB_ERROR(read_safetensors(file), code, "[safetensors]", "a.safetensors", texts...);
}

TEST(Safetensors, ReadsTensorsMetadataAndEmptyOnes) {
  const TempDir dir;
  const std::string header = R"({"__metadata__":{"format":"pt"},"a":)" + entry("F32", "[2,3]", "[0,24]") +
                             R"(,"none":)" + entry("F32", "[0]", "[24,24]") + R"(,"one":)" +
                             entry("BF16", "[]", "[24,26]") + "}   ";
  const auto file =
      dir.write("a.safetensors", safetensors_file(header, f32_bytes({1, 2, 3, 4, 5, 6}) + as_bytes(uint16_t{0x3fc0})));
  const Safetensors read = read_safetensors(file);
  ASSERT_EQ(read.tensors.size(), 3u);
  EXPECT_EQ(read.tensors.at("a")->to_f32(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(read.tensors.at("a")->shape(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(read.tensors.at("none")->num_bytes(), 0u);
  EXPECT_EQ(read.tensors.at("one")->to_f32(), (std::vector<float>{1.5f}));
  EXPECT_EQ(read.metadata.at("format"), "pt");
}

TEST(Safetensors, TensorsOutliveTheReaderAndReleasedPages) {
  const TempDir dir;
  ConstantRef kept;
  {
    const auto file = dir.write("a.safetensors", SafetensorsWriter().add("a", {2}, {3, 4}).bytes());
    kept = read_safetensors(file).tensors.at("a");
  }
  kept->release_pages();
  EXPECT_EQ(kept->to_f32(), (std::vector<float>{3, 4}));
}

TEST(Safetensors, UnalignedDataIsReadRight) {
  const TempDir dir;
  const std::string header = R"({"b":)" + entry("U8", "[1]", "[0,1]") + R"(,"a":)" + entry("F32", "[2]", "[1,9]") + "}";
  const auto file = dir.write("a.safetensors", safetensors_file(header, "x" + f32_bytes({5, 6})));
  const Safetensors read = read_safetensors(file);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(read.tensors.at("a")->row(0)) % 4, 0u);
  EXPECT_EQ(read.tensors.at("a")->to_f32(), (std::vector<float>{5, 6}));
}

TEST(Safetensors, HeaderLengthIsNotTrusted) {
  expect_refused("", Code::kDataLoss, "cut", "0 bytes", "8 missing");
  expect_refused(std::string(5, '\0'), Code::kDataLoss, "cut", "3 missing");
  expect_refused(as_bytes(~uint64_t{0}), Code::kDataLoss, "18446744073709551615", "268435456");
  expect_refused(as_bytes(uint64_t{0x7fffffffffffffff}), Code::kDataLoss, "header length");
  expect_refused(as_bytes(uint64_t{100'000'001}) + "{}", Code::kDataLoss, "100000001");
  expect_refused(as_bytes(uint64_t{99'000'000}) + "{}", Code::kDataLoss, "cut", "98999998 missing");
  expect_refused(as_bytes(uint64_t{0}), Code::kDataLoss, "header length 0");
}

TEST(Safetensors, HeaderMustBeTheRightJson) {
  expect_refused(safetensors_file("[1]", ""), Code::kDataLoss, "'{'");
  expect_refused(safetensors_file("{\"a\":", ""), Code::kDataLoss, "not valid JSON");
  expect_refused(safetensors_file("{}x", ""), Code::kDataLoss, "not valid JSON");
  expect_refused(safetensors_file("{\"a\":3}", ""), Code::kDataLoss, "a number where tensor a expects an object");
  expect_refused(safetensors_file("{\"a\":null}", ""), Code::kDataLoss, "null");
  expect_refused(safetensors_file("{\"a\":{\"dtype\":{}}}", ""), Code::kDataLoss, "an object", "tensor a");
  expect_refused(safetensors_file("{\"a\":{}}", ""), Code::kDataLoss, "tensor a has no dtype");
  expect_refused(safetensors_file("{\"a\":{\"kind\":1}}", ""), Code::kDataLoss, "unknown key \"kind\"");
  expect_refused(safetensors_file("{\"__metadata__\":{\"a\":1}}", ""), Code::kDataLoss, "__metadata__", "a string");
  expect_refused(safetensors_file("{\"a\":" + entry("F32", "[[1]]", "[0,4]") + "}", "1234"), Code::kDataLoss, "array");
  std::string nested = "{\"a\":";
  nested.append(100000, '[');
  expect_refused(safetensors_file(nested, ""), Code::kDataLoss, "array");
}

TEST(Safetensors, ShapesAndOffsetsMustAgree) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return safetensors_file("{\"a\":" + entry(dtype, shape, offsets) + "}", std::string(16, '\0'));
  };
  expect_refused(one("F32", "[32,8]", "[0,65536]"), Code::kDataLoss, "tensor a", "1024", "65536");
  expect_refused(one("F32", "[1000,1000]", "[0,16]"), Code::kDataLoss, "4000000");
  expect_refused(one("F32", "[4]", "[16,0]"), Code::kDataLoss, "backwards");
  expect_refused(one("F32", "[4]", "[]"), Code::kDataLoss, "0 numbers, must have 2");
  expect_refused(one("F32", "[4]", "[0]"), Code::kDataLoss, "1 numbers, must have 2");
  expect_refused(one("F32", "[4]", "[0,8,16]"), Code::kDataLoss, "3 numbers");
  expect_refused(one("F32", "[-4]", "[0,16]"), Code::kDataLoss, "negative");
  expect_refused(one("F32", "[4.0]", "[0,16]"), Code::kDataLoss, "not an integer");
  expect_refused(one("F32", "[4]", "[0,18446744073709551616]"), Code::kDataLoss, "not an integer");
  expect_refused(one("F32", "[4294967296,4294967296]", "[0,16]"), Code::kDataLoss, "64 bits");
  expect_refused(one("F32", "[18446744073709551615]", "[0,16]"), Code::kDataLoss, "64 bits");
  expect_refused(one("F32", "[0]", "[0,16]"), Code::kDataLoss, "needs 0 bytes");
  expect_refused(one("F32", "[1]", "[0,0]"), Code::kDataLoss, "needs 4 bytes", "span 0");
  expect_refused(one("X9", "[4]", "[0,16]"), Code::kDataLoss, "unknown dtype X9");
  expect_refused(one("F8_E4M3", "[16]", "[0,16]"), Code::kUnsupported, "tensor a", "F8_E4M3", "supported");
  expect_refused(one("F32", "[1,1,1,1,1,1,1,1,4]", "[0,16]"), Code::kUnsupported, "rank 9");
}

TEST(Safetensors, EveryByteBelongsToOneTensor) {
  const auto two = [](const std::string& a, const std::string& b, size_t bytes, const char* second = "b") {
    const std::string header =
        "{\"a\":" + entry("F32", "[4]", a) + ",\"" + second + "\":" + entry("F32", "[4]", b) + "}";
    return safetensors_file(header, std::string(bytes, '\0'));
  };
  expect_refused(two("[0,16]", "[0,16]", 16), Code::kDataLoss, "overlap", "a", "b");
  expect_refused(two("[0,16]", "[12,28]", 28), Code::kDataLoss, "overlap");
  expect_refused(two("[0,16]", "[20,36]", 36), Code::kDataLoss, "hole of 4 bytes");
  expect_refused(two("[4,20]", "[20,36]", 36), Code::kDataLoss, "hole of 4 bytes", "start of the data");
  expect_refused(two("[0,16]", "[16,32]", 31), Code::kDataLoss, "cut", "32", "31", "1 missing");
  expect_refused(two("[0,16]", "[16,32]", 40), Code::kDataLoss, "8 bytes at the end");
  expect_refused(two("[0,16]", "[16,32]", 32, "a"), Code::kDataLoss, "\"a\" appears twice");
}

TEST(Safetensors, OddFilesAreRefused) {
  const TempDir dir;
  EXPECT_ATB_ERROR(read_safetensors(dir / "absent.safetensors"), Code::kNotFound, "absent.safetensors");
  EXPECT_ATB_ERROR(read_safetensors(dir.path()), Code::kInvalidArgument, "not a regular file");
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_ATB_ERROR(read_safetensors(dir / "pipe"), Code::kInvalidArgument, "not a regular file");  // and no hang
}

TEST(SafetensorsDirectory, SingleFileOrShards) {
  const TempDir single;
  single.write("model.safetensors", SafetensorsWriter().add("a", {1}, {7}).bytes());
  EXPECT_EQ(read_safetensors_directory(single.path()).tensors.at("a")->to_f32(), std::vector<float>{7});

  const TempDir sharded;
  sharded.write("x1.safetensors", SafetensorsWriter().add("a", {1}, {1}).add("extra", {1}, {3}).bytes());
  sharded.write("x2.safetensors", SafetensorsWriter().add("b", {1}, {2}).bytes());
  sharded.write("model.safetensors.index.json",
                R"({"metadata":{},"weight_map":{"a":"x1.safetensors","b":"x2.safetensors"}})");
  const Safetensors read = read_safetensors_directory(sharded.path());
  EXPECT_EQ(read.tensors.size(), 3u);
  EXPECT_EQ(read.tensors.at("b")->to_f32(), std::vector<float>{2});
  EXPECT_EQ(read.files.size(), 2u);
}

TEST(SafetensorsDirectory, MissingFilesAreNamed) {
  const TempDir dir;
  EXPECT_ATB_ERROR(read_safetensors_directory(dir.path()), Code::kNotFound, "model.safetensors");
  dir.write("pytorch_model.bin", "x");
  EXPECT_ATB_ERROR(read_safetensors_directory(dir.path()), Code::kNotFound, "safe_serialization");
}

TEST(SafetensorsDirectory, IndexMustBeSound) {
  const auto refused = [](const std::string& index, Code code, const std::string& text) {
    const TempDir dir;
    dir.write("model.safetensors.index.json", index);
    EXPECT_ATB_ERROR(read_safetensors_directory(dir.path()), code, "model.safetensors.index.json", text);
  };
  refused("{", Code::kDataLoss, "not valid JSON");
  refused("[]", Code::kDataLoss, "weight_map");
  refused(R"({"weight_map":[]})", Code::kDataLoss, "weight_map");
  refused(R"({"weight_map":{"a":3}})", Code::kDataLoss, "weight_map[\"a\"]");
  refused(R"({"weight_map":{"a":"x","a":"y"}})", Code::kDataLoss, "\"a\" appears twice");
  const TempDir dir;
  dir.write("model.safetensors.index.json", R"({"weight_map":{"a":")" + std::string(300, 'x') + "\"}}");
  EXPECT_ATB_ERROR(read_safetensors_directory(dir.path()), Code::kNotFound, "is missing");  // too long for any file
  std::string nested;
  for (int i = 0; i < 100000; ++i) nested += "[";
  refused(nested, Code::kDataLoss, "nested");
}

TEST(SafetensorsDirectory, SnapshotsOfTheHubCacheMayLinkIntoItsBlobs) {
  const TempDir cache;
  cache.write("models--o--m/blobs/123", SafetensorsWriter().add("a", {1}, {7}).bytes());
  cache.write("models--o--m/snapshots/r/model.safetensors.index.json", R"({"weight_map":{"a":"m.safetensors"}})");
  std::filesystem::create_symlink("../../blobs/123", cache / "models--o--m/snapshots/r/m.safetensors");
  EXPECT_EQ(read_safetensors_directory(cache / "models--o--m/snapshots/r").tensors.size(), 1u);
}

}  // namespace
}  // namespace atb

// SPDX-License-Identifier: Apache-2.0
// B33: two names on one byte range, holes, duplicate keys with a misleading message; a legal empty tensor refused.
#include <gtest/gtest.h>

#include "frontends/safetensors.h"
#include "models/model.h"
#include "models/tiny_models.h"

namespace atb {
namespace {

using testing::safetensors_file;
using testing::TempDir;
using testing::TinyLlama;

std::string entry(const std::string& name, const std::string& shape, int begin, int end) {
  return "\"" + name + R"(":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[)" + std::to_string(begin) + "," +
         std::to_string(end) + "]}";
}

// The message must give the true reason and no other.
void expect_refused(const std::vector<std::string>& entries, size_t data_bytes,
                    const std::vector<std::string>& reasons) {
  std::string header;
  for (const std::string& text : entries) header += (header.empty() ? "{" : ",") + text;
  const TempDir dir;
  dir.write("model.safetensors", safetensors_file(header + "}", std::string(data_bytes, '\0')));
  dir.write("config.json", TinyLlama().config_json());
  for (const std::string& reason : reasons) {
    EXPECT_ATB_ERROR(read_safetensors(dir / "model.safetensors"), Code::kDataLoss, reason);
    EXPECT_ATB_ERROR(load_model(dir.path()), Code::kDataLoss, reason);
  }
}

TEST(B33, TwoNamesOnOneRange) {
  expect_refused({entry("a", "[4]", 0, 16), entry("b", "[4]", 0, 16)}, 16, {"tensors a and b overlap"});
  expect_refused({entry("b", "[4]", 12, 28), entry("a", "[4]", 0, 16)}, 28, {"tensors a and b overlap", "byte 12"});
  expect_refused({entry("a", "[8]", 0, 32), entry("b", "[2]", 8, 16)}, 32, {"tensors a and b overlap"});  // inside
}

TEST(B33, Holes) {
  expect_refused({entry("a", "[1]", 0, 4), entry("b", "[1]", 8, 12)}, 12,
                 {"a hole of 4 bytes", "between a and tensor b"});
  expect_refused({entry("a", "[1]", 4, 8)}, 8, {"a hole of 4 bytes", "the start of the data"});
  expect_refused({entry("a", "[1]", 0, 4)}, 8, {"4 bytes at the end of the file belong to no tensor"});
}

TEST(B33, TheSameKeyTwice) {
  expect_refused({entry("a", "[1]", 0, 4), entry("a", "[1]", 4, 8)}, 8, {"the key \"a\" appears twice"});
  expect_refused({R"("a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]})"}, 4,
                 {"the key \"dtype\" appears twice in tensor a"});
}

TEST(B33, EmptyTensors) {
  expect_refused({entry("e", "[1]", 0, 0)}, 0, {"tensor e", "needs 4 bytes", "span 0"});
  const TempDir dir;
  const auto read = [&](const std::string& header, size_t bytes) {
    return read_safetensors(dir.write("e.safetensors", safetensors_file("{" + header + "}", std::string(bytes, '\0'))));
  };
  EXPECT_EQ(read(entry("e", "[0]", 0, 0), 0).tensors.at("e")->num_bytes(), 0u);
  EXPECT_EQ(read(entry("e", "[3,0]", 4, 4) + "," + entry("a", "[1]", 0, 4), 4).tensors.at("e")->shape(),
            (std::vector<int64_t>{3, 0}));
  EXPECT_EQ(read(entry("a", "[1]", 0, 4) + "," + entry("e", "[0]", 0, 0), 4).tensors.size(), 2u);
}

TEST(B33, AnEmptyTensorDoesNotKeepAModelFromLoading) {
  TinyLlama model;
  model.layers = 1;
  model.fill().tensors["empty"] = {{0}, {}};
  const TempDir dir;
  EXPECT_EQ(load_model(model.write_directory(dir), {.log_warnings = false}).config.layers, 1);
}

}  // namespace
}  // namespace atb

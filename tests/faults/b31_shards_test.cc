// SPDX-License-Identifier: Apache-2.0
// B31: a shard that the index names is missing or cut, or lacks a tensor; loading must name the file and what is
// missing.
#include <gtest/gtest.h>

#include "models/model.h"
#include "models/tiny_models.h"

namespace atb {
namespace {

using testing::SafetensorsWriter;
using testing::TempDir;
using testing::TinyLlama;

// A tiny model in two shards.
class B31 : public ::testing::Test {
 protected:
  void SetUp() override {
    TinyLlama model;
    model.fill();
    dir_.write("config.json", model.config_json());
    SafetensorsWriter shards[2];
    std::string map;
    int next = 0;
    for (const auto& [name, tensor] : model.tensors) {
      const int shard = next++ % 2;
      shards[shard].add(name, tensor.shape, tensor.values);
      map += (map.empty() ? "\"" : ", \"") + name + "\": \"" + kFiles[shard] + "\"";
      last_in_second_ = shard == 1 ? name : last_in_second_;
    }
    for (int i = 0; i < 2; ++i) {
      bytes_[i] = shards[i].bytes();
      dir_.write(kFiles[i], bytes_[i]);
    }
    map_ = map;
    write_index(map_);
  }

  void write_index(const std::string& map) {
    dir_.write("model.safetensors.index.json", R"({"weight_map": {)" + map + "}}");
  }

  const char* kFiles[2] = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
  TempDir dir_;
  std::string bytes_[2], map_, last_in_second_;
};

TEST_F(B31, WholeShardsLoad) { EXPECT_EQ(load_model(dir_.path()).config.layers, 2); }

TEST_F(B31, MissingShard) {
  std::filesystem::remove(dir_ / kFiles[1]);
  EXPECT_ATB_ERROR(load_model(dir_.path()), Code::kNotFound, kFiles[1], "is missing");
}

TEST_F(B31, OneByteCut) {
  dir_.write(kFiles[1], bytes_[1].substr(0, bytes_[1].size() - 1));
  EXPECT_ATB_ERROR(load_model(dir_.path()), Code::kDataLoss, kFiles[1], "cut", "1 missing");
}

TEST_F(B31, CutToEightBytes) {
  dir_.write(kFiles[1], bytes_[1].substr(0, 8));
  EXPECT_ATB_ERROR(load_model(dir_.path()), Code::kDataLoss, kFiles[1], "cut", "the header needs", "missing");
}

TEST_F(B31, TensorThatTheShardLacks) {
  write_index(map_ + ", \"model.extra.weight\": \"" + kFiles[0] + "\"");
  EXPECT_ATB_ERROR(load_model(dir_.path()), Code::kDataLoss, kFiles[0], "no tensor model.extra.weight");
}

}  // namespace
}  // namespace atb

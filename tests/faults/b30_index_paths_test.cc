// SPDX-License-Identifier: Apache-2.0
// B30: shard names of an index joined to the model directory unchecked.
#include <gtest/gtest.h>

#include "frontends/file_writers.h"
#include "frontends/safetensors.h"

namespace atb {
namespace {

using testing::SafetensorsWriter;
using testing::TempDir;

// An index whose entry "bad" has this value, beside a good shard that is not a safetensors file at all: were anything
// opened before all names are checked, the error would be about its bytes.
void expect_refused(const TempDir& dir, const std::string& value, const std::string& reason) {
  dir.write("a.safetensors", "junk");
  dir.write("model.safetensors.index.json", R"({"weight_map": {"a": "a.safetensors", "bad": ")" + value + "\"}}");
  const std::string shown = value == "sub\\\\x.safetensors" ? "sub\\x.safetensors" : value;  // JSON escapes
  EXPECT_ATB_ERROR(read_safetensors_directory(dir.path()), Code::kInvalidArgument, "weight_map[\"bad\"]",
                   "\"" + shown + "\"", reason);
}

TEST(B30, ShardNamesMustStayInTheDirectory) {
  const TempDir root;
  root.write("other/model.safetensors", SafetensorsWriter().add("bad", {1}, {1}).bytes());
  const TempDir dir;
  dir.write("sub/x.safetensors", SafetensorsWriter().add("bad", {1}, {1}).bytes());
  expect_refused(dir, "../other/model.safetensors", "leads out of the model directory");
  expect_refused(dir, "..", "leads out of the model directory");
  expect_refused(dir, "sub/../../x.safetensors", "leads out of the model directory");
  expect_refused(dir, "/etc/hostname", "is an absolute path");
  expect_refused(dir, "sub/x.safetensors", "is not a plain file name");
  expect_refused(dir, "./a.safetensors", "is not a plain file name");
  expect_refused(dir, "sub\\\\x.safetensors", "is not a plain file name");
  expect_refused(dir, "", "is empty");
}

TEST(B30, SymbolicLinksMustNotLeaveTheDirectory) {
  const TempDir outside, dir;
  const auto target = outside.write("secret.safetensors", SafetensorsWriter().add("bad", {1}, {1}).bytes());
  std::filesystem::create_symlink(target, dir / "link.safetensors");
  expect_refused(dir, "link.safetensors", "outside the model directory");
  std::filesystem::create_symlink("link.safetensors", dir / "second.safetensors");
  expect_refused(dir, "second.safetensors", "outside the model directory");
  std::filesystem::create_symlink("nowhere", dir / "dangling.safetensors");
  expect_refused(dir, "dangling.safetensors", "symbolic link to nothing");
}

TEST(B30, LinksInsideTheDirectoryAreFine) {
  const TempDir dir;
  dir.write("real.bin", SafetensorsWriter().add("a", {1}, {1}).bytes());
  std::filesystem::create_symlink("real.bin", dir / "a.safetensors");
  dir.write("model.safetensors.index.json", R"({"weight_map": {"a": "a.safetensors"}})");
  EXPECT_EQ(read_safetensors_directory(dir.path()).tensors.size(), 1u);
}

}  // namespace
}  // namespace atb

// SPDX-License-Identifier: Apache-2.0
// A whole file mapped read-only. Sizes are checked against the mapping before any read, so a cut file is an error and
// never a bus error. A file that somebody truncates while it is mapped is found by check_size() before long reads; a
// read that comes at the very moment, or later during a step, still ends the process (docs/errors.md).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/constant.h"

namespace atb {

class MappedFile : public std::enable_shared_from_this<MappedFile> {
 public:
  // kNotFound if there is no such file, kInvalidArgument if it is not a regular file or cannot be read; `where` starts
  // the message ("[gguf]").
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path, const char* where);
  // Bytes that are in memory already; `name` stands for the path in messages.
  static std::shared_ptr<const MappedFile> of_bytes(std::filesystem::path name, std::vector<std::byte> bytes);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  // kDataLoss if the file has become shorter than its mapping: reading what it lost would end the process.
  void check_size() const;
  // A view of the whole file that keeps the mapping alive, can drop resident pages and calls check_size().
  StorageRef storage() const;

 private:
  explicit MappedFile(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
  std::vector<std::byte> owned_;  // of of_bytes()
  int descriptor_ = -1;           // stays open for check_size(); -1: nothing is mapped
};

// False also where the question cannot be answered (no permission, a name that is too long); never throws.
bool file_exists(const std::filesystem::path& path);

// The whole of a small text file (JSON next to the weights). kNotFound / kInvalidArgument as above; kDataLoss above
// `max_bytes`.
std::string read_text_file(const std::filesystem::path& path, const char* where, size_t max_bytes);

}  // namespace atb

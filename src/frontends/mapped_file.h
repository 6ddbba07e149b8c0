// SPDX-License-Identifier: Apache-2.0
// A whole file mapped read-only. Sizes are checked against the mapping before any read, so a cut file is an error and
// never a bus error (as long as nobody truncates the file while it is in use).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "core/constant.h"

namespace atb {

class MappedFile : public std::enable_shared_from_this<MappedFile> {
 public:
  // kNotFound if there is no such file, kInvalidArgument if it is not a regular file or cannot be read; `where` starts
  // the message ("[gguf]").
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path, const char* where);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  // A view of the whole file that keeps the mapping alive and can drop resident pages.
  StorageRef storage() const;

 private:
  MappedFile(std::filesystem::path path, std::span<const std::byte> bytes);
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

// False also where the question cannot be answered (no permission, a name that is too long); never throws.
bool file_exists(const std::filesystem::path& path);

// The whole of a small text file (JSON next to the weights). kNotFound / kInvalidArgument as above; kDataLoss above
// `max_bytes`.
std::string read_text_file(const std::filesystem::path& path, const char* where, size_t max_bytes);

}  // namespace atb

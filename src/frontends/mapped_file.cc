// SPDX-License-Identifier: Apache-2.0
// Read-only file mapping over POSIX mmap.
#include "frontends/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace atb {
namespace {

void drop_pages(const std::byte* begin, size_t size) {
  static const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  // Outward to page borders: neighbours that share a page are simply read again.
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin) / page * page;
  const uintptr_t last = reinterpret_cast<uintptr_t>(begin) + size;
  ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace

MappedFile::~MappedFile() {
  if (descriptor_ < 0) return;
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  ::close(descriptor_);
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path, const char* where) {
  const std::shared_ptr<MappedFile> file(new MappedFile(path));
  // O_NONBLOCK: opening a FIFO by mistake must not hang.
  file->descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file->descriptor_ < 0) {
    const int reason = errno;
    throw_error(reason == ENOENT || reason == ENOTDIR ? Code::kNotFound : Code::kInvalidArgument, where,
                " cannot open ", path.string(), ": ", std::strerror(reason));
  }
  struct stat info {};
  if (::fstat(file->descriptor_, &info) != 0 || !S_ISREG(info.st_mode)) {
    throw_error(Code::kInvalidArgument, where, " ", path.string(), " is not a regular file");
  }
  const size_t size = static_cast<size_t>(info.st_size);
  if (size == 0) return file;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file->descriptor_, 0);
  if (address == MAP_FAILED) {
    throw_error(Code::kResourceExhausted, where, " cannot map ", path.string(), " (", size,
                " bytes): ", std::strerror(errno));
  }
  file->bytes_ = {static_cast<const std::byte*>(address), size};
  return file;
}

std::shared_ptr<const MappedFile> MappedFile::of_bytes(std::filesystem::path name, std::vector<std::byte> bytes) {
  const std::shared_ptr<MappedFile> file(new MappedFile(std::move(name)));
  file->owned_ = std::move(bytes);
  file->bytes_ = file->owned_;
  return file;
}

void MappedFile::check_size() const {
  struct stat info {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &info) != 0) return;
  const size_t size = static_cast<size_t>(info.st_size);
  require(size >= bytes_.size(), Code::kDataLoss, "[file] ", path_.string(), " was truncated while in use: it had ",
          bytes_.size(), " bytes, now ", size, "; restore it and load the model again");
}

StorageRef MappedFile::storage() const {
  auto storage = std::make_shared<Storage>();
  storage->bytes = bytes_;
  storage->owner = shared_from_this();
  if (descriptor_ >= 0) {
    storage->release_pages = drop_pages;
    storage->check = [this] { check_size(); };
  }
  return storage;
}

bool file_exists(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::string read_text_file(const std::filesystem::path& path, const char* where, size_t max_bytes) {
  const auto file = MappedFile::open(path, where);
  const auto bytes = file->bytes();
  require(bytes.size() <= max_bytes, Code::kDataLoss, where, " ", path.string(), " is too long: ", bytes.size(),
          " bytes, at most ", max_bytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace atb

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

// Closes the descriptor; a mapping stays valid without it.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

void drop_pages(const std::byte* begin, size_t size) {
  static const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  // Outward to page borders: neighbours that share a page are simply read again.
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin) / page * page;
  const uintptr_t last = reinterpret_cast<uintptr_t>(begin) + size;
  ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path, std::span<const std::byte> bytes)
    : path_(std::move(path)), bytes_(bytes) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path, const char* where) {
  // O_NONBLOCK: opening a FIFO by mistake must not hang.
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) {
    const int reason = errno;
    throw_error(reason == ENOENT || reason == ENOTDIR ? Code::kNotFound : Code::kInvalidArgument, where,
                " cannot open ", path.string(), ": ", std::strerror(reason));
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    throw_error(Code::kInvalidArgument, where, " ", path.string(), " is not a regular file");
  }
  const size_t size = static_cast<size_t>(info.st_size);
  if (size == 0) return std::shared_ptr<const MappedFile>(new MappedFile(path, {}));
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) {
    throw_error(Code::kResourceExhausted, where, " cannot map ", path.string(), " (", size,
                " bytes): ", std::strerror(errno));
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(path, {static_cast<const std::byte*>(address), size}));
}

StorageRef MappedFile::storage() const {
  return std::make_shared<const Storage>(Storage{bytes_, shared_from_this(), drop_pages});
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

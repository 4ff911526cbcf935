#include "io/file.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fmt/format.h>

#include <ration/error.hpp>

namespace ration::io {
namespace {

int open_flags(Access access) {
  switch (access) {
    case Access::read:
      return O_RDONLY;
    case Access::write_new:
      return O_RDWR | O_CREAT | O_EXCL;
    case Access::read_write:
      return O_RDWR;
  }
  return O_RDONLY;
}

int open_retrying(const std::filesystem::path& path, int flags) {
  int descriptor = -1;
  do {
    // A pipe would be waited at until somebody opens its other end; files take no notice.
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

// One transfer after the other until all is done; `transfer(done)` is a system call's result.
template <class Transfer>
void complete(std::size_t size, const Transfer& transfer, const auto& describe,
              const std::filesystem::path& path) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t n = transfer(done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path, describe(), errno);
    if (n == 0)
      throw IoError(fmt::format("{}: {}: the file ends there", path.string(), describe()));
    done += static_cast<std::size_t>(n);
  }
}

}  // namespace

void fail(const std::filesystem::path& path, std::string_view what, int error_number) {
  throw IoError(fmt::format("{}: {}: {}", path.string(), what,
                            std::generic_category().message(error_number)));
}

File::File(const std::filesystem::path& path, Access access, Cache cache) : path_(path) {
  const int flags = open_flags(access);
  if (cache == Cache::direct) {
    descriptor_ = open_retrying(path, flags | O_DIRECT);
    direct_ = descriptor_ >= 0;
  }
  // A file system that knows no O_DIRECT says EINVAL, some after the file was made.
  if (descriptor_ < 0 && !(cache == Cache::direct && errno != EINVAL)) {
    descriptor_ = open_retrying(path, cache == Cache::direct ? flags & ~O_EXCL : flags);
  }
  if (descriptor_ < 0) fail(path, access == Access::write_new ? "making it" : "opening it", errno);
  struct stat status = {};
  const int error = ::fstat(descriptor_, &status) != 0 ? errno : 0;
  if (error == 0 && S_ISREG(status.st_mode)) return;
  ::close(descriptor_);
  if (error != 0) fail(path, "fstat", error);
  throw IoError(fmt::format("{}: opening it: it is no regular file", path.string()));
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      direct_(other.direct_) {}

File& File::operator=(File&& other) noexcept {
  if (this == &other) return *this;
  if (descriptor_ >= 0) ::close(descriptor_);
  path_ = std::move(other.path_);
  descriptor_ = std::exchange(other.descriptor_, -1);
  direct_ = other.direct_;
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void File::read(std::uint64_t offset, std::span<std::byte> to) const {
  complete(
      to.size(),
      [&](std::size_t done) {
        return ::pread(descriptor_, to.data() + done, to.size() - done,
                       static_cast<off_t>(offset + done));
      },
      [&] { return fmt::format("reading {} bytes at {}", to.size(), offset); }, path_);
}

void File::write(std::uint64_t offset, std::span<const std::byte> from) const {
  complete(
      from.size(),
      [&](std::size_t done) {
        return ::pwrite(descriptor_, from.data() + done, from.size() - done,
                        static_cast<off_t>(offset + done));
      },
      [&] { return fmt::format("writing {} bytes at {}", from.size(), offset); }, path_);
}

void File::resize(std::uint64_t size) const {
  int result = 0;
  do {
    result = ::ftruncate(descriptor_, static_cast<off_t>(size));
  } while (result != 0 && errno == EINTR);
  if (result != 0) fail(path_, fmt::format("resizing it to {} bytes", size), errno);
}

void File::allocate(std::uint64_t size) const {
  resize(size);
  if (size == 0) return;
  int result = 0;
  do {
    result = ::fallocate(descriptor_, 0, 0, static_cast<off_t>(size));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return;
  // A file system that promises no room; posix_fallocate would write all of it.
  const int error = errno;
  const bool unknown = error == EOPNOTSUPP || error == ENOSYS;
  if (unknown && free_space(path_.parent_path()) >= size) return;
  fail(path_, fmt::format("making room for {} bytes", size), unknown ? ENOSPC : error);
}

void File::synchronize() const {
  if (::fsync(descriptor_) != 0) fail(path_, "fsync", errno);
}

std::uint64_t File::size() const {
  struct stat status = {};
  if (::fstat(descriptor_, &status) != 0) fail(path_, "fstat", errno);
  return static_cast<std::uint64_t>(status.st_size);
}

void File::close() {
  if (descriptor_ < 0) return;
  // Linux frees the descriptor whatever close says; an interrupted one is not tried again.
  const int result = ::close(std::exchange(descriptor_, -1));
  if (result != 0 && errno != EINTR) fail(path_, "closing it", errno);
}

void synchronize_folder(const std::filesystem::path& folder) {
  const int descriptor = open_retrying(folder, O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) fail(folder, "opening it", errno);
  const int result = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  // Some network file systems have no fsync of folders: there is nothing more to be done.
  if (result != 0 && error != EINVAL) fail(folder, "fsync", error);
}

void replace_file(const std::filesystem::path& path, std::string_view contents) {
  static std::atomic<unsigned> count{0};
  std::filesystem::path temporary = path;
  temporary += fmt::format(".tmp-{}-{}", ::getpid(), count.fetch_add(1));
  try {
    File file(temporary, Access::write_new);
    file.write(0, std::as_bytes(std::span(contents.data(), contents.size())));
    file.synchronize();
    file.close();
    io::rename(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  synchronize_folder(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."));
}

std::string read_file(const std::filesystem::path& path, std::size_t limit) {
  const File file(path, Access::read);
  const std::uint64_t size = file.size();
  if (size > limit) {
    throw IoError(
        fmt::format("{}: has {} bytes, more than the {} it may have", path.string(), size, limit));
  }
  std::string contents(static_cast<std::size_t>(size), '\0');
  file.read(0, std::as_writable_bytes(std::span(contents.data(), contents.size())));
  return contents;
}

void rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    fail(from, fmt::format("renaming it to {}", to.string()), errno);
}

std::uint64_t free_space(const std::filesystem::path& folder) {
  struct statvfs status = {};
  if (::statvfs(folder.c_str(), &status) != 0) fail(folder, "statvfs", errno);
  return static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
}

}  // namespace ration::io

#pragma once
// Files by descriptor: every transfer is whole or an error that names the file, what was asked and
// the system's reason.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace ration::io {

/// What O_DIRECT wants memory, offsets and lengths to be a multiple of.
inline constexpr std::size_t kDirectAlignment = 4096;

enum class Access { read, write_new, read_write };  ///< write_new: must not exist yet (O_EXCL)
enum class Cache {
  buffered,
  direct
};  ///< direct: O_DIRECT, or buffered where that is not to be had

/// An open file, movable. Never follows a symbolic link at the last name, never waits at a pipe:
/// what is no regular file is refused. Every member but the observers throws IoError.
class File {
 public:
  File() = default;
  File(const std::filesystem::path& path, Access access, Cache cache = Cache::buffered);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  /// Interrupted and short transfers are resumed. Reading past the end is an error.
  void read(std::uint64_t offset, std::span<std::byte> to) const;
  void write(std::uint64_t offset, std::span<const std::byte> from) const;
  void resize(std::uint64_t size) const;
  /// Makes it `size` bytes long, with room on the disk for each. Throws where there is none.
  void allocate(std::uint64_t size) const;
  void synchronize() const;  ///< fsync, once: a failed one is not tried again
  [[nodiscard]] std::uint64_t size() const;
  /// Whether transfers go around the page cache.
  [[nodiscard]] bool direct() const { return direct_; }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Closes, and throws for an error that only shows there. Idempotent.
  void close();

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  bool direct_ = false;
};

/// So that what was made, renamed or removed in it survives a power cut.
void synchronize_folder(const std::filesystem::path& folder);

/// Writes a small file whole: to a temporary name beside it, fsync, rename over `path`, fsync of
/// the folder. A reader sees the former file or the new one.
void replace_file(const std::filesystem::path& path, std::string_view contents);

/// A whole small file. Throws IoError also when it is longer than `limit` bytes.
std::string read_file(const std::filesystem::path& path, std::size_t limit);

void rename(const std::filesystem::path& from, const std::filesystem::path& to);

/// Bytes that this process may still write where `folder` is.
std::uint64_t free_space(const std::filesystem::path& folder);

/// IoError "PATH: WHAT: reason of errno".
[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what, int error_number);

}  // namespace ration::io

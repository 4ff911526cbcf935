#pragma once
// Memory that the processes of one host share: a nameless file, so that nothing is left behind
// whatever ends them. Segments are cut from it by whoever wants one; the others map them when they
// first meet them.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "device/memory.hpp"

namespace ration {

class Arena {
 public:
  /// The first `reserved` bytes are for the caller's use, zeroed. Throws OutOfMemory.
  static std::shared_ptr<Arena> create(std::size_t reserved);

  /// How others get at it: the process and its descriptor.
  struct Address {
    std::int64_t pid = 0;
    std::int32_t descriptor = -1;
  };
  [[nodiscard]] Address address() const;

  /// Another process's. Throws IoError where the system does not let it (another user, another
  /// process namespace).
  static std::shared_ptr<Arena> open(Address address, std::size_t reserved);

  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  [[nodiscard]] std::byte* reserved() const;

  struct Segment {
    std::uint64_t begin = 0;
    std::uint64_t length = 0;
    std::byte* data = nullptr;  ///< here
  };
  /// Zeroed, aligned as Memory is; its memory is the file's until all processes have closed it.
  Segment allocate(std::size_t bytes);
  /// A segment of another process, mapped here.
  std::byte* map(std::uint64_t begin, std::uint64_t length);
  /// The own segment in which [data, data + bytes) lies, if any.
  [[nodiscard]] const Segment* find(const std::byte* data, std::size_t bytes) const;

 private:
  Arena(int file, std::size_t reserved);
  std::byte* map_file(std::uint64_t begin, std::uint64_t length) const;

  const int file_;
  const std::size_t reserved_length_;
  std::byte* reserved_ = nullptr;
  mutable std::mutex mutex_;
  std::map<const std::byte*, Segment> own_;  // by where they end here
  std::map<std::uint64_t, Segment> mapped_;  // by where they begin in the file
};

}  // namespace ration

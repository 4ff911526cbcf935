#pragma once
// Writes that go on while the next data is read: a few large buffers between the one who fills them
// and a thread that writes them out.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "io/behind.hpp"

namespace ration::checkpoint {

class ScatterWriter {
 public:
  static constexpr std::size_t kBuffers = 3;
  static constexpr std::size_t kBufferBytes = std::size_t{16} << 20;

  /// `files` outlive it.
  explicit ScatterWriter(std::vector<const io::BlockFile*> files);
  ~ScatterWriter();  ///< Drops what was not written.
  ScatterWriter(const ScatterWriter&) = delete;
  ScatterWriter& operator=(const ScatterWriter&) = delete;

  /// Room for the next bytes of `file` from `offset` on: a multiple of `element` up to `bytes`, at
  /// an address that is one, too. To be filled before the next call. Throws what a write threw.
  std::span<std::byte> claim(std::size_t file, std::uint64_t offset, std::size_t bytes,
                             std::size_t element);

  /// Returns when everything is written. Throws what a write threw.
  void finish();

 private:
  struct Extent {
    std::size_t file = 0;
    std::uint64_t offset = 0;
    std::size_t begin = 0;  ///< in the buffer
    std::size_t length = 0;
  };
  struct Buffer {
    std::vector<Extent> extents;
    std::size_t used = 0;
  };

  void hand_over();
  void write(const Extent& extent, const std::byte* from) const;
  void write_all();

  std::vector<const io::BlockFile*> files_;
  io::Buffers memory_{kBuffers, kBufferBytes};
  Buffer buffers_[kBuffers];
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t filled_ = 0;   ///< buffers handed over
  std::uint64_t written_ = 0;  ///< of these
  bool end_ = false;
  std::exception_ptr failed_;
  std::thread thread_;
};

}  // namespace ration::checkpoint

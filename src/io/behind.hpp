#pragma once
// Large sequential transfers that run while the caller computes: a thread of their own moves one
// block while the next is filled, or the last is used.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "io/file.hpp"

namespace ration::io {

/// Bytes [offset, offset + bytes) of a file.
struct Block {
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
};

/// A file opened twice: whole 4 KiB blocks go around the page cache where that is possible, what is
/// left over through it, byte by byte exact.
class BlockFile {
 public:
  BlockFile(const std::filesystem::path& path, Access access);
  /// `memory` is aligned to kDirectAlignment.
  void read(const Block& block, std::byte* memory) const;
  void write(const Block& block, const std::byte* memory) const;
  [[nodiscard]] const File& buffered() const { return buffered_; }

 private:
  [[nodiscard]] std::size_t direct_part(const Block& block) const;
  File direct_;
  File buffered_;
};

/// Memory for transfers: `count` buffers of `bytes`, aligned to kDirectAlignment.
class Buffers {
 public:
  Buffers(std::size_t count, std::size_t bytes);
  [[nodiscard]] std::byte* at(std::size_t index) const { return data_.get() + index * bytes_; }
  [[nodiscard]] std::size_t count() const { return count_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::size_t count_, bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

/// Writes blocks in order behind the caller. Not for several threads.
class WriteBehind {
 public:
  /// Blocks of at most `bytes`; `file` outlives it.
  WriteBehind(const BlockFile& file, std::size_t bytes);
  /// Gives up what is not written.
  ~WriteBehind();
  WriteBehind(const WriteBehind&) = delete;
  WriteBehind& operator=(const WriteBehind&) = delete;

  /// Memory to fill; waits for one to be free. Throws what a write has thrown.
  std::byte* next();
  /// Writes what `next` gave.
  void submit(const Block& block);
  /// Returns when all is written. Throws what a write has thrown.
  void finish();

 private:
  void run();
  void throw_failure() const;

  const BlockFile& file_;
  Buffers buffers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Block> queue_;  ///< the first is being written
  std::size_t submitted_ = 0;
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

/// Reads blocks in order ahead of the caller. Not for several threads.
class ReadAhead {
 public:
  /// Blocks of at most `bytes`; `file` outlives it.
  ReadAhead(const BlockFile& file, std::vector<Block> blocks, std::size_t bytes);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// The next block; valid until the next call. Throws what its read has thrown.
  std::span<const std::byte> next();

 private:
  void run();

  const BlockFile& file_;
  std::vector<Block> blocks_;
  Buffers buffers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t read_ = 0;   ///< blocks
  std::size_t taken_ = 0;  ///< blocks; the last is in use
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace ration::io

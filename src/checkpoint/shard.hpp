#pragma once
// One rank's HDF5 file. HDF5 makes it, with every dataset at a place of its own; the data is then
// written and read at those places by plain transfers with a checksum per block, so that disk speed
// is reached and no reader depends on HDF5 to be right.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace ration::checkpoint {

/// Bytes of a slice that share one checksum (XXH3-64); the last block of a slice may be shorter.
inline constexpr std::uint64_t kBlockBytes = std::uint64_t{4} << 20;

/// Elements [start, start + length) of one kind of array of a flat.
struct Slice {
  int flat = 0;  ///< as numbered by flats_of
  int kind = 0;  ///< in FlatEntry::kinds
  std::int64_t start = 0;
  std::int64_t length = 0;
  friend bool operator==(const Slice&, const Slice&) = default;
};

/// A slice and where it is in its file.
struct PlacedSlice : Slice {
  DType dtype = DType::f32;
  std::uint64_t offset = 0;          ///< of its first byte in the file
  std::uint64_t first_checksum = 0;  ///< of its first block, in the table of checksums
  [[nodiscard]] std::uint64_t bytes() const {
    return static_cast<std::uint64_t>(length) * size_of(dtype);
  }
};

/// Gives elements [first, first + count) of `slice` (first counts in the slice).
using Fill =
    std::function<void(std::size_t slice, std::int64_t first, std::int64_t count, std::byte* to)>;

/// Writes one rank's file from beginning to end.
class ShardWriter {
 public:
  /// Makes the file (it must not exist) with its attributes and all datasets. `manifest` gives
  /// names, uuid and step; its `shards` may be empty. Slices of length 0 are left out. Throws
  /// IoError.
  ShardWriter(const std::filesystem::path& path, const Manifest& manifest, int rank, int world,
              std::vector<Slice> slices);
  ~ShardWriter();
  ShardWriter(ShardWriter&&) noexcept;

  /// Writes until everything is written and safe (then true) or `until` is past (at least one block
  /// each call). Throws IoError; the file is then of no use.
  bool advance(const Fill& fill, std::chrono::steady_clock::time_point until);

  [[nodiscard]] std::uint64_t written() const;  ///< bytes of slices, so far
  [[nodiscard]] std::uint64_t total() const;    ///< bytes of all slices

  /// What the manifest says of the file, once `advance` has said true.
  [[nodiscard]] const ShardEntry& entry() const;

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

/// Gets verified elements [first, first + count) of a slice (first counts in the slice).
using Deliver = std::function<void(std::int64_t first, std::int64_t count, const std::byte* from)>;

/// Reads one rank's file by the manifest's offsets. Throws CorruptCheckpoint naming the file for
/// whatever does not agree, IoError for what cannot be read.
class ShardReader {
 public:
  /// Opens the file (never through a symbolic link), checks size, index and checksums table: slices
  /// inside the file, of flats and kinds that the manifest has, not overlapping.
  ShardReader(const std::filesystem::path& folder, const Manifest& manifest, int rank);
  ~ShardReader();
  ShardReader(ShardReader&&) noexcept;

  /// By file offset.
  [[nodiscard]] std::span<const PlacedSlice> slices() const;
  [[nodiscard]] const std::filesystem::path& path() const;

  /// Checks all bytes outside slices and tables.
  void check_rest() const;

  struct Range {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };
  /// Ranges of a slice, ascending and not overlapping, and who gets them.
  struct Request {
    const PlacedSlice* slice = nullptr;  ///< of `slices()`
    std::vector<Range> wanted{};
    Deliver deliver{};
  };

  /// Reads the blocks that hold a range, each once and whole, verified before any of it is
  /// delivered; request after request, each range in pieces and in order.
  void read(std::span<const Request> requests) const;
  void read(const PlacedSlice& slice, std::span<const Range> wanted, const Deliver& deliver) const;

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace ration::checkpoint

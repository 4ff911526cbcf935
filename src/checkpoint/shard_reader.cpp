#include <algorithm>
#include <cstring>
#include <new>

#include <fmt/format.h>
#include <xxhash.h>

#include <ration/error.hpp>

#include "checkpoint/shard_table.hpp"
#include "io/behind.hpp"

namespace ration::checkpoint {
namespace {

// Tables larger than that are no honest shard's: 16 TiB in one file.
constexpr std::uint64_t kLargestTable = std::uint64_t{32} << 20;

// Numbers of a slice's blocks that hold an element of the ranges, ascending.
std::vector<std::uint64_t> blocks_with(const PlacedSlice& slice,
                                       std::span<const ShardReader::Range> wanted) {
  const std::int64_t in_block =
      static_cast<std::int64_t>(kBlockBytes) / static_cast<std::int64_t>(size_of(slice.dtype));
  std::vector<std::uint64_t> numbers;
  for (const ShardReader::Range& range : wanted) {
    if (range.count == 0) continue;
    const auto last = static_cast<std::uint64_t>((range.first + range.count - 1) / in_block);
    auto number = static_cast<std::uint64_t>(range.first / in_block);
    if (!numbers.empty()) number = std::max(number, numbers.back() + 1);
    for (; number <= last; ++number) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

struct ShardReader::Inside {
  std::filesystem::path path;
  const Manifest& manifest;
  const ShardEntry& entry;
  io::BlockFile file;
  std::vector<PlacedSlice> slices;
  std::vector<std::uint64_t> sums;

  Inside(std::filesystem::path where, const Manifest& m, const ShardEntry& e)
      : path(std::move(where)), manifest(m), entry(e), file(path, io::Access::read) {}

  [[noreturn]] void refuse(std::string_view why) const {
    throw CorruptCheckpoint(fmt::format("{}: {}", path.string(), why));
  }
  [[nodiscard]] std::vector<std::byte> table(const Extent& extent, std::string_view what) const {
    if (extent.length > kLargestTable)
      refuse(fmt::format("its {} of {} bytes is too long", what, extent.length));
    std::vector<std::byte> bytes(extent.length);
    file.buffered().read(extent.offset, bytes);
    const std::uint64_t found = XXH3_64bits(bytes.data(), bytes.size());
    if (found != extent.checksum) {
      refuse(fmt::format("its {} has checksum {:016x}, the manifest says {:016x}", what, found,
                         extent.checksum));
    }
    return bytes;
  }
  void verify(const PlacedSlice& slice, std::uint64_t block,
              std::span<const std::byte> bytes) const;
  static void deliver(const Request& request, std::uint64_t block, std::span<const std::byte> bytes,
                      std::vector<Range>::const_iterator& range);
};

void ShardReader::Inside::verify(const PlacedSlice& slice, std::uint64_t block,
                                 std::span<const std::byte> bytes) const {
  const std::uint64_t found = XXH3_64bits(bytes.data(), bytes.size());
  const std::uint64_t said = sums[slice.first_checksum + block];
  if (found == said) return;
  const FlatPlace place = flats_of(manifest)[static_cast<std::size_t>(slice.flat)];
  refuse(fmt::format("block {} of {} ({} bytes at {}) has checksum {:016x}, its table says {:016x}",
                     block, dataset_name(manifest, place, slice.kind), bytes.size(),
                     slice.offset + block * kBlockBytes, found, said));
}

// From `range` on, which is where the former block has ended.
void ShardReader::Inside::deliver(const Request& request, std::uint64_t block,
                                  std::span<const std::byte> bytes,
                                  std::vector<Range>::const_iterator& range) {
  const auto element = static_cast<std::int64_t>(size_of(request.slice->dtype));
  const std::int64_t begin =
      static_cast<std::int64_t>(block) * (static_cast<std::int64_t>(kBlockBytes) / element);
  const std::int64_t end = begin + static_cast<std::int64_t>(bytes.size()) / element;
  for (; range != request.wanted.end(); ++range) {
    const std::int64_t first = std::max(begin, range->first);
    const std::int64_t last = std::min(end, range->first + range->count);
    if (range->first >= end) break;
    if (first < last)
      request.deliver(first, last - first, bytes.data() + (first - begin) * element);
    if (range->first + range->count > end) break;  // the next block goes on with it
  }
}

ShardReader::ShardReader(const std::filesystem::path& folder, const Manifest& manifest, int rank) {
  const ShardEntry& entry = manifest.shards[static_cast<std::size_t>(rank)];
  inside_ = std::make_unique<Inside>(folder / entry.file, manifest, entry);
  Inside& in = *inside_;
  const std::uint64_t size = in.file.buffered().size();
  if (size != entry.size)
    in.refuse(fmt::format("has {} bytes, the manifest says {}", size, entry.size));
  std::uint64_t arrays = 0;
  for (const FlatPlace& place : flats_of(manifest)) arrays += flat_at(manifest, place).kinds.size();
  if (entry.index.length % kRowBytes != 0 || entry.index.length / kRowBytes > arrays)
    in.refuse(
        fmt::format("its index of {} bytes is not one of {} arrays", entry.index.length, arrays));
  in.slices = from_rows(in.table(entry.index, "index"), manifest, entry, in.path.string());
  const std::vector<std::byte> sums = in.table(entry.checksums, "table of checksums");
  in.sums.resize(sums.size() / 8);
  std::memcpy(in.sums.data(), sums.data(), sums.size());
}

ShardReader::~ShardReader() = default;
ShardReader::ShardReader(ShardReader&&) noexcept = default;

std::span<const PlacedSlice> ShardReader::slices() const {
  return inside_->slices;
}
const std::filesystem::path& ShardReader::path() const {
  return inside_->path;
}

void ShardReader::check_rest() const {
  const Inside& in = *inside_;
  const std::uint64_t found =
      checksum_of_rest(in.file.buffered(), in.slices, in.entry.index, in.entry.checksums);
  if (found != in.entry.rest) {
    in.refuse(fmt::format("its HDF5 metadata has checksum {:016x}, the manifest says {:016x}",
                          found, in.entry.rest));
  }
}

void ShardReader::read(const PlacedSlice& slice, std::span<const Range> wanted,
                       const Deliver& deliver) const {
  const Request request{&slice, {wanted.begin(), wanted.end()}, deliver};
  read({&request, 1});
}

void ShardReader::read(std::span<const Request> requests) const {
  const Inside& in = *inside_;
  std::vector<io::Block> blocks;
  std::vector<std::vector<std::uint64_t>> numbers;  // of the blocks of each request
  std::size_t largest = 0;
  for (const Request& request : requests) {
    const PlacedSlice& slice = *request.slice;
    numbers.push_back(blocks_with(slice, request.wanted));
    for (const std::uint64_t number : numbers.back()) {
      const std::uint64_t begin = number * kBlockBytes;
      blocks.push_back({.offset = slice.offset + begin,
                        .bytes = static_cast<std::size_t>(
                            std::min<std::uint64_t>(kBlockBytes, slice.bytes() - begin))});
      largest = std::max(largest, blocks.back().bytes);
    }
  }
  if (blocks.empty()) return;
  io::ReadAhead reader(in.file, std::move(blocks), largest);
  for (std::size_t r = 0; r < requests.size(); ++r) {
    auto range = requests[r].wanted.begin();
    for (const std::uint64_t number : numbers[r]) {
      const std::span<const std::byte> bytes = reader.next();
      in.verify(*requests[r].slice, number, bytes);
      in.deliver(requests[r], number, bytes, range);
    }
  }
}

}  // namespace ration::checkpoint

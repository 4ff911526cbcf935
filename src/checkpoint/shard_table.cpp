#include "checkpoint/shard_table.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <set>

#include <fmt/format.h>
#include <xxhash.h>

#include <ration/error.hpp>

#include "checkpoint/hdf5.hpp"

namespace ration::checkpoint {
namespace {

struct Row {
  std::uint32_t flat, kind;
  std::int64_t start, length;
  std::uint64_t offset, first_checksum;
};
static_assert(sizeof(Row) == kRowBytes && std::is_trivially_copyable_v<Row>);
static_assert(std::endian::native == std::endian::little, "tables are little-endian");

}  // namespace

std::vector<std::byte> to_rows(std::span<const PlacedSlice> slices) {
  std::vector<std::byte> rows(slices.size() * kRowBytes);
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const PlacedSlice& s = slices[i];
    const Row row{static_cast<std::uint32_t>(s.flat),
                  static_cast<std::uint32_t>(s.kind),
                  s.start,
                  s.length,
                  s.offset,
                  s.first_checksum};
    std::memcpy(rows.data() + i * kRowBytes, &row, kRowBytes);
  }
  return rows;
}

std::vector<PlacedSlice> from_rows(std::span<const std::byte> rows, const Manifest& manifest,
                                   const ShardEntry& entry, const std::string& where) {
  const auto refuse = [&](const std::string& why) {
    throw CorruptCheckpoint(fmt::format("{}: its index: {}", where, why));
  };
  const std::vector<FlatPlace> places = flats_of(manifest);
  std::vector<PlacedSlice> slices;
  std::set<std::pair<int, int>> met;
  std::uint64_t blocks = 0;
  for (std::size_t i = 0; i < rows.size() / kRowBytes; ++i) {
    Row row;
    std::memcpy(&row, rows.data() + i * kRowBytes, kRowBytes);
    if (row.flat >= places.size())
      refuse(fmt::format("row {} is of flat {}, there are {}", i, row.flat, places.size()));
    const FlatEntry& flat = flat_at(manifest, places[row.flat]);
    if (row.kind >= flat.kinds.size())
      refuse(fmt::format("row {} is of kind {}, there are {}", i, row.kind, flat.kinds.size()));
    PlacedSlice& s = slices.emplace_back();
    s.flat = static_cast<int>(row.flat);
    s.kind = static_cast<int>(row.kind);
    s.start = row.start;
    s.length = row.length;
    s.dtype = flat.kinds[row.kind].dtype;
    s.offset = row.offset;
    s.first_checksum = row.first_checksum;
    if (!met.emplace(s.flat, s.kind).second)
      refuse(fmt::format("row {} is the second of flat {} and kind {}", i, s.flat, s.kind));
    if (s.start < 0 || s.length <= 0 || s.length > flat.length ||
        s.start > flat.length - s.length) {
      refuse(fmt::format("row {} has elements {} and {} more, its flat has {}", i, s.start,
                         s.length, flat.length));
    }
    if (s.bytes() > entry.size || s.offset > entry.size - s.bytes())
      refuse(fmt::format("row {} has {} bytes at {}, the file has {}", i, s.bytes(), s.offset,
                         entry.size));
    if (s.first_checksum != blocks)
      refuse(
          fmt::format("row {} begins with checksum {}, expected {}", i, s.first_checksum, blocks));
    blocks += blocks_of(s.bytes());
  }
  if (entry.checksums.length != blocks * 8)
    refuse(fmt::format("{} blocks, but {} bytes of checksums", blocks, entry.checksums.length));
  std::sort(slices.begin(), slices.end(),
            [](const PlacedSlice& a, const PlacedSlice& b) { return a.offset < b.offset; });
  std::uint64_t end = 0;
  std::vector<Extent> all = {entry.index, entry.checksums};
  for (const PlacedSlice& s : slices) all.push_back({s.offset, s.bytes()});
  std::sort(all.begin(), all.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  for (const Extent& extent : all) {
    if (extent.length == 0) continue;
    if (extent.offset < end)
      refuse(fmt::format("two slices or tables overlap at {}", extent.offset));
    end = extent.offset + extent.length;
  }
  return slices;
}

std::string dataset_name(const Manifest& manifest, const FlatPlace& place, int kind) {
  const OptimizerEntry& optimizer = manifest.optimizers[static_cast<std::size_t>(place.optimizer)];
  const FlatEntry& flat = flat_at(manifest, place);
  // The tables' names are theirs; escapes are undone alike whichever character they stand for.
  std::string first = hdf5::escaped(optimizer.name);
  if (first == "index" || first == "checksums")
    first = fmt::format("%{:02X}{}", static_cast<unsigned>(first[0]), first.substr(1));
  return fmt::format("/{}/{}/{}.{}/{}", first,
                     hdf5::escaped(optimizer.units[static_cast<std::size_t>(place.unit)].name),
                     name_of(flat.dtype), flat.trainable ? "trainable" : "frozen",
                     hdf5::escaped(flat.kinds[static_cast<std::size_t>(kind)].name));
}

std::uint64_t checksum_of_rest(const io::File& file, std::span<const PlacedSlice> slices,
                               const Extent& index, const Extent& checksums) {
  std::vector<Extent> known = {index, checksums};
  for (const PlacedSlice& s : slices) known.push_back({s.offset, s.bytes()});
  const std::uint64_t size = file.size();
  known.push_back({size, 0});
  std::sort(known.begin(), known.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  std::vector<std::byte> buffer(std::size_t{256} << 10);
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::uint64_t place = 0;
  for (const Extent& extent : known) {
    while (place < extent.offset) {
      const auto n =
          static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), extent.offset - place));
      file.read(place, {buffer.data(), n});
      XXH3_64bits_update(state.get(), buffer.data(), n);
      place += n;
    }
    place = std::max(place, extent.offset + extent.length);
  }
  return XXH3_64bits_digest(state.get());
}

}  // namespace ration::checkpoint

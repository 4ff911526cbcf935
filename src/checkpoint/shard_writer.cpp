#include <algorithm>
#include <optional>

#include <xxhash.h>

#include <ration/error.hpp>

#include "checkpoint/hdf5.hpp"
#include "checkpoint/shard_table.hpp"
#include "io/behind.hpp"

namespace ration::checkpoint {

struct ShardWriter::Inside {
  std::filesystem::path path;
  std::vector<PlacedSlice> slices;
  std::vector<std::size_t> given;  ///< which of the slices given to us each is
  Extent index, checksums;
  std::vector<std::uint64_t> sums;
  std::optional<io::BlockFile> file;
  std::optional<io::WriteBehind> writer;
  std::size_t slice = 0;    ///< to be written next
  std::uint64_t place = 0;  ///< bytes of it that are
  std::uint64_t written = 0;
  std::uint64_t total = 0;
  ShardEntry entry;
  bool done = false;

  void lay_out(const Manifest& manifest, int rank, int world);
  void write_block(const Fill& fill);
  void finish();
};

// HDF5 makes the file with places for everything; nothing of ours is written by it.
void ShardWriter::Inside::lay_out(const Manifest& manifest, int rank, int world) {
  const std::vector<FlatPlace> places = flats_of(manifest);
  const std::lock_guard lock(hdf5::mutex());
  hdf5::NewFile made(path);
  made.add_text("", "format", kFormat);
  made.add_number("", "version", kVersion);
  made.add_text("", "uuid", manifest.uuid);
  made.add_number("", "step", manifest.step);
  made.add_number("", "rank", rank);
  made.add_number("", "world", world);
  std::uint64_t blocks = 0;
  for (PlacedSlice& s : slices) {
    const FlatPlace& place = places[static_cast<std::size_t>(s.flat)];
    s.dtype = flat_at(manifest, place).kinds[static_cast<std::size_t>(s.kind)].dtype;
    const std::string name = dataset_name(manifest, place, s.kind);
    s.offset = made.add_dataset(name, hdf5::file_type(s.dtype), {static_cast<hsize_t>(s.length)});
    s.first_checksum = blocks;
    blocks += blocks_of(s.bytes());
    total += s.bytes();
    made.add_number(name, "start", s.start);
    made.add_number(name, "length", s.length);
    made.add_text(name, "dtype", name_of(s.dtype));
  }
  sums.resize(blocks);
  if (!slices.empty()) {
    index.length = slices.size() * kRowBytes;
    index.offset = made.add_dataset("/index", H5T_STD_U8LE, {index.length});
    checksums.length = blocks * 8;
    checksums.offset = made.add_dataset("/checksums", H5T_STD_U64LE, {blocks});
  }
  made.close();
}

void ShardWriter::Inside::write_block(const Fill& fill) {
  const PlacedSlice& s = slices[slice];
  const auto bytes =
      static_cast<std::size_t>(std::min<std::uint64_t>(kBlockBytes, s.bytes() - place));
  const auto element = static_cast<std::int64_t>(size_of(s.dtype));
  std::byte* memory = writer->next();
  fill(given[slice], static_cast<std::int64_t>(place) / element,
       static_cast<std::int64_t>(bytes) / element, memory);
  sums[s.first_checksum + place / kBlockBytes] = XXH3_64bits(memory, bytes);
  writer->submit({.offset = s.offset + place, .bytes = bytes});
  written += bytes;
  place += bytes;
  if (place == s.bytes()) {
    place = 0;
    ++slice;
  }
}

void ShardWriter::Inside::finish() {
  if (writer) writer->finish();
  writer.reset();
  const io::File& plain = file->buffered();
  const std::vector<std::byte> rows = to_rows(slices);
  const auto table = std::as_bytes(std::span(sums));
  if (!slices.empty()) {
    plain.write(index.offset, rows);
    plain.write(checksums.offset, table);
  }
  index.checksum = XXH3_64bits(rows.data(), rows.size());
  checksums.checksum = XXH3_64bits(table.data(), table.size());
  entry.file = path.filename().string();
  entry.size = plain.size();
  entry.index = index;
  entry.checksums = checksums;
  entry.rest = checksum_of_rest(plain, slices, index, checksums);
  plain.synchronize();
  file.reset();
  io::synchronize_folder(path.parent_path());
  done = true;
}

ShardWriter::ShardWriter(const std::filesystem::path& path, const Manifest& manifest, int rank,
                         int world, std::vector<Slice> slices)
    : inside_(std::make_unique<Inside>()) {
  inside_->path = path;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (slices[i].length == 0) continue;
    PlacedSlice& placed = inside_->slices.emplace_back();
    static_cast<Slice&>(placed) = slices[i];
    inside_->given.push_back(i);
  }
  inside_->lay_out(manifest, rank, world);
  inside_->file.emplace(path, io::Access::read_write);
}

ShardWriter::~ShardWriter() = default;
ShardWriter::ShardWriter(ShardWriter&&) noexcept = default;

bool ShardWriter::advance(const Fill& fill, std::chrono::steady_clock::time_point until) {
  Inside& in = *inside_;
  if (in.done) return true;
  if (!in.slices.empty() && !in.writer) in.writer.emplace(*in.file, kBlockBytes);
  while (in.slice < in.slices.size()) {
    in.write_block(fill);
    if (in.slice < in.slices.size() && std::chrono::steady_clock::now() >= until) return false;
  }
  in.finish();
  return true;
}

std::uint64_t ShardWriter::written() const {
  return inside_->written;
}
std::uint64_t ShardWriter::total() const {
  return inside_->total;
}
const ShardEntry& ShardWriter::entry() const {
  return inside_->entry;
}

}  // namespace ration::checkpoint

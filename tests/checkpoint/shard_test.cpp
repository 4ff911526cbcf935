// One rank's file: what is written is read, by us and by HDF5.

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <ration/error.hpp>

#include "checkpoint/shard_table.hpp"
#include "small.hpp"
#include "support/folder.hpp"

namespace ration::test {
namespace {

using checkpoint::Manifest;
using checkpoint::PlacedSlice;
using checkpoint::ShardReader;
using testing::HasSubstr;

// Lengths of one block and less, around 4 KiB and around the block.
constexpr std::int64_t kBlock = static_cast<std::int64_t>(checkpoint::kBlockBytes);
const std::int64_t kLengths[] = {1,    3,          1023,           1024,
                                 1025, kBlock / 4, kBlock / 4 + 1, kBlock / 2 + 7};

TEST(Shard, ReadsWhatWasWritten) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t length : kLengths) {
      const Folder folder;
      const Manifest manifest = write_small(folder.path(), length, 3, type);
      std::int64_t elements = 0;
      for (int rank = 0; rank < 3; ++rank) {
        const ShardReader reader(folder.path(), manifest, rank);
        reader.check_rest();
        for (const PlacedSlice& slice : reader.slices()) {
          EXPECT_EQ(slice.offset % 4096, 0u);
          const auto element = static_cast<std::int64_t>(size_of(slice.dtype));
          std::int64_t place = 0;
          const ShardReader::Range whole[] = {{0, slice.length}};
          reader.read(
              slice, whole, [&](std::int64_t first, std::int64_t count, const std::byte* from) {
                ASSERT_EQ(first, place);
                place += count;
                for (std::int64_t i = 0; i < count * element; ++i) {
                  ASSERT_EQ(from[i], byte_at(slice.kind, (slice.start + first) * element + i));
                }
              });
          EXPECT_EQ(place, slice.length);
          if (slice.kind == 0) elements += place;
        }
      }
      EXPECT_EQ(elements, length);
    }
  }
}

TEST(Shard, GivesRangesInOrderAndNothingElse) {
  const Folder folder;
  const std::int64_t length = kBlock;  // four blocks of f32
  const Manifest manifest = write_small(folder.path(), length, 1);
  const ShardReader reader(folder.path(), manifest, 0);
  const std::int64_t b = kBlock / 4;
  const std::vector<ShardReader::Range> wanted = {
      {0, 1}, {5, 0}, {7, 3}, {b - 1, 2}, {b + 1, 1}, {2 * b - 5, b + 10}, {length - 1, 1}};
  std::vector<std::int64_t> expected, got;
  for (const auto& range : wanted) {
    for (std::int64_t i = 0; i < range.count; ++i) expected.push_back(range.first + i);
  }
  reader.read(reader.slices()[0], wanted,
              [&](std::int64_t first, std::int64_t count, const std::byte* from) {
                for (std::int64_t i = 0; i < count; ++i) got.push_back(first + i);
                ASSERT_EQ(from[0], byte_at(reader.slices()[0].kind, first * 4));
              });
  EXPECT_EQ(got, expected);
}

// HDF5's metadata is whole beside tails that end in the middle of a 4 KiB block.
TEST(Shard, IsOrdinaryHdf5) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const Folder folder;
    const Manifest manifest = write_small(folder.path(), 1500, 1, type);
    const std::string path = folder / manifest.shards[0].file;
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    ASSERT_GE(file, 0);
    const std::string name =
        "/optimizer/a%2Funit/" + std::string(name_of(type)) + ".trainable/parameter";
    const hid_t set = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
    ASSERT_GE(set, 0);
    std::vector<float> values(1500);
    ASSERT_GE(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    const auto bits_at = [](std::int64_t i, int bytes) {
      std::uint32_t bits = 0;
      for (int k = 0; k < bytes; ++k)
        bits |= std::to_integer<std::uint32_t>(byte_at(0, i * bytes + k)) << (8 * k);
      return bits;
    };
    for (std::int64_t i = 0; i < 1500; ++i) {
      float expected = 0;
      if (type == DType::f32) {
        expected = std::bit_cast<float>(bits_at(i, 4));
      } else if (type == DType::bf16) {
        expected = std::bit_cast<float>(bits_at(i, 2) << 16);
      } else {
        f16 half;
        half.bits = static_cast<std::uint16_t>(bits_at(i, 2));
        expected = static_cast<float>(half);
      }
      // HDF5's own conversion flushes nothing and rounds nothing here: all are exact in fp32.
      ASSERT_EQ(values[static_cast<std::size_t>(i)], expected) << name_of(type) << " " << i;
    }
    std::int64_t start = -1;
    const hid_t attribute = H5Aopen(set, "length", H5P_DEFAULT);
    ASSERT_GE(H5Aread(attribute, H5T_NATIVE_INT64, &start), 0);
    EXPECT_EQ(start, 1500);
    H5Aclose(attribute);
    H5Dclose(set);
    H5Fclose(file);
  }
}

TEST(Shard, BehindALinkIsRefused) {
  const Folder folder;
  const Manifest manifest = write_small(folder.path(), 100, 1);
  const auto path = folder / manifest.shards[0].file;
  std::filesystem::rename(path, folder / "elsewhere");
  std::filesystem::create_symlink(folder / "elsewhere", path);
  EXPECT_THROW(ShardReader(folder.path(), manifest, 0), IoError);
}

TEST(Shard, OfAnIndexThatLiesIsRefused) {
  const Folder folder;
  const Manifest manifest = write_small(folder.path(), 1000, 1);
  const checkpoint::ShardEntry& entry = manifest.shards[0];
  const ShardReader reader(folder.path(), manifest, 0);
  const std::vector<PlacedSlice> good(reader.slices().begin(), reader.slices().end());
  const auto refused = [&](const std::function<void(std::vector<PlacedSlice>&)>& change) {
    std::vector<PlacedSlice> slices = good;
    change(slices);
    try {
      checkpoint::from_rows(checkpoint::to_rows(slices), manifest, entry, "there");
    } catch (const CorruptCheckpoint& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused([](auto&) {}), "accepted");
  EXPECT_THAT(refused([](auto& s) { s[0].flat = 1; }), HasSubstr("is of flat 1"));
  EXPECT_THAT(refused([](auto& s) { s[0].flat = -1; }), HasSubstr("is of flat"));
  EXPECT_THAT(refused([](auto& s) { s[0].kind = 9; }), HasSubstr("is of kind 9"));
  EXPECT_THAT(refused([](auto& s) { s[1].kind = s[0].kind; }), HasSubstr("the second of"));
  EXPECT_THAT(refused([](auto& s) { s[0].start = -1; }), HasSubstr("elements"));
  EXPECT_THAT(refused([](auto& s) { s[0].length = INT64_MAX; }), HasSubstr("elements"));
  EXPECT_THAT(refused([](auto& s) { s[0].length = 0; }), HasSubstr("elements"));
  EXPECT_THAT(refused([](auto& s) { s[0].offset = UINT64_MAX - 3; }), HasSubstr("bytes at"));
  EXPECT_THAT(refused([](auto& s) { s[1].offset = s[0].offset + 1; }), HasSubstr("overlap"));
  EXPECT_THAT(refused([&](auto& s) { s[1].offset = entry.index.offset; }), HasSubstr("overlap"));
  EXPECT_THAT(refused([](auto& s) { s[1].first_checksum = 0; }), HasSubstr("begins with checksum"));
  EXPECT_THAT(refused([](auto& s) { s.pop_back(); }), HasSubstr("bytes of checksums"));
}

}  // namespace
}  // namespace ration::test

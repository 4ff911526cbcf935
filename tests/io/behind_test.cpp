// Transfers of another thread arrive in order and whole, and their errors where they are asked for.

#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "io/behind.hpp"
#include "support/folder.hpp"

namespace ration::test {
namespace {

using io::Access;
using io::Block;
using io::BlockFile;
using io::ReadAhead;
using io::WriteBehind;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kBlock = 3 * 4096;

std::byte value_at(std::uint64_t place) {
  return static_cast<std::byte>(place * 7 + place / 251);
}

/// Of uneven lengths and places: whole pages, tails, single bytes, gaps.
std::vector<Block> uneven_blocks() {
  std::vector<Block> blocks;
  std::uint64_t place = 0;
  for (const std::size_t bytes : {kBlock, std::size_t{1}, kBlock - 1, std::size_t{4096},
                                  std::size_t{4097}, kBlock, std::size_t{5000}, std::size_t{17}}) {
    blocks.push_back({place, bytes});
    place += bytes + (blocks.size() % 2 ? 4096 - bytes % 4096 : 100);
  }
  return blocks;
}

void make(const std::filesystem::path& path) {
  const io::File file(path, Access::write_new);
}

TEST(WriteBehind, WritesWhatReadAheadReads) {
  const Folder folder;
  const std::filesystem::path path = folder / "file";
  make(path);
  const BlockFile file(path, Access::read_write);
  const std::vector<Block> blocks = uneven_blocks();
  WriteBehind writer(file, kBlock);
  for (int round = 0; round < 3; ++round) {  // more blocks than buffers, several finishes
    for (const Block& block : blocks) {
      std::byte* const memory = writer.next();
      for (std::size_t i = 0; i < block.bytes; ++i) memory[i] = value_at(block.offset + i);
      writer.submit(block);
    }
    writer.finish();
  }
  ReadAhead reader(file, blocks, kBlock);
  for (const Block& block : blocks) {
    const auto bytes = reader.next();
    ASSERT_EQ(bytes.size(), block.bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      ASSERT_EQ(bytes[i], value_at(block.offset + i)) << block.offset << " " << i;
  }
}

// A padded tail would overwrite what stands behind it.
TEST(WriteBehind, TouchesNoByteBesideItsBlocks) {
  const Folder folder;
  const std::filesystem::path path = folder / "file";
  std::ofstream(path) << std::string(40000, '#');
  const BlockFile file(path, Access::read_write);
  {
    WriteBehind writer(file, kBlock);
    std::memset(writer.next(), '.', kBlock);
    writer.submit({4096, 5000});
    std::memset(writer.next(), '.', kBlock);
    writer.submit({20001, 4096});
    writer.finish();
  }
  std::string expected(40000, '#');
  std::fill_n(expected.begin() + 4096, 5000, '.');
  std::fill_n(expected.begin() + 20001, 4096, '.');
  EXPECT_EQ(io::read_file(path, 50000), expected);
}

/// A file that refuses every write: it is open for reading only.
TEST(WriteBehind, ThrowsTheErrorOfItsThreadFromFinishAndNext) {
  const Folder folder;
  const std::filesystem::path path = folder / "file";
  make(path);
  const BlockFile file(path, Access::read);
  const auto error_of = [&](const auto& work) {
    try {
      work();
    } catch (const IoError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  const auto expected = AllOf(HasSubstr(path.string()), HasSubstr("writing 10 bytes at 3"));
  {
    WriteBehind writer(file, kBlock);
    writer.next();
    writer.submit({3, 10});
    EXPECT_THAT(error_of([&] { writer.finish(); }), expected);
    EXPECT_THAT(error_of([&] { writer.finish(); }), expected);
    EXPECT_THAT(error_of([&] { writer.next(); }), expected);
  }
  {
    // Never waits for a buffer that will not come.
    WriteBehind writer(file, kBlock);
    EXPECT_THAT(error_of([&] {
                  for (int i = 0; i < 10; ++i) {
                    writer.next();
                    writer.submit({3, 10});
                  }
                }),
                expected);
  }
}

TEST(WriteBehind, CanBeDestroyedWithWorkInFlight) {
  const Folder folder;
  const std::filesystem::path path = folder / "file";
  make(path);
  const BlockFile file(path, Access::read_write);
  for (int round = 0; round < 50; ++round) {
    WriteBehind writer(file, kBlock);
    for (int i = 0; i < round % 4; ++i) {
      std::memset(writer.next(), 1, kBlock);
      writer.submit({static_cast<std::uint64_t>(i) * kBlock, kBlock});
    }
    if (round % 5 == 0) writer.next();  // filled by nobody
  }
}

TEST(ReadAhead, ThrowsAtTheBlockThatCannotBeReadAndNotBefore) {
  const Folder folder;
  const std::filesystem::path path = folder / "file";
  std::ofstream(path) << std::string(10000, 'x');
  const BlockFile file(path, Access::read);
  ReadAhead reader(file, {{0, 4096}, {4096, 4096}, {8192, 4096}, {0, 4096}}, 4096);
  EXPECT_EQ(reader.next().size(), 4096u);
  EXPECT_EQ(reader.next().size(), 4096u);
  for (int again = 0; again < 2; ++again) {
    try {
      reader.next();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(path.string()), HasSubstr("the file ends there")));
    }
  }
}

TEST(ReadAhead, KeepsABlockUntilTheNextIsAskedFor) {
  const Folder folder;
  const std::filesystem::path path = folder / "file";
  std::string contents;
  for (char c = 'a'; c < 'a' + 12; ++c) contents += std::string(4096, c);
  std::ofstream(path) << contents;
  const BlockFile file(path, Access::read);
  std::vector<Block> blocks;
  for (std::uint64_t i = 0; i < 12; ++i) blocks.push_back({i * 4096, 4096});
  ReadAhead reader(file, blocks, 4096);
  for (char c = 'a'; c < 'a' + 12; ++c) {
    const auto bytes = reader.next();
    for (int look = 0; look < 50; ++look) {
      ASSERT_EQ(std::count(bytes.begin(), bytes.end(), static_cast<std::byte>(c)), 4096);
      std::this_thread::yield();
    }
  }
}

TEST(ReadAhead, CanBeDestroyedWithWorkInFlight) {
  const Folder folder;
  const std::filesystem::path path = folder / "file";
  std::ofstream(path) << std::string(20 * 4096, 'x');
  const BlockFile file(path, Access::read);
  std::vector<Block> blocks;
  for (std::uint64_t i = 0; i < 20; ++i) blocks.push_back({i * 4096, 4096});
  for (int taken = 0; taken < 20; ++taken) {
    ReadAhead reader(file, blocks, 4096);
    for (int i = 0; i < taken; ++i) reader.next();
  }
}

}  // namespace
}  // namespace ration::test

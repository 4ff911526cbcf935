// Swap files and the ways to move bytes to and from them.

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <ration/error.hpp>

#include "aligned.hpp"
#include "offload/block_device.hpp"
#include "support/folder.hpp"
#include "support/throws.hpp"

namespace ration::test {
namespace {

namespace fs = std::filesystem;
using offload::BlockDevice;
using offload::DeviceOptions;
using offload::Engine;
using offload::SwapFiles;
using offload::Transfer;
using testing::AllOf;
using testing::HasSubstr;

struct Setting {
  Engine engine = Engine::threads;
  bool direct = true;
  int folders = 1;
};
void PrintTo(const Setting& setting, std::ostream* out) {
  *out << (setting.engine == Engine::uring ? "io_uring" : "threads")
       << (setting.direct ? ", direct, " : ", buffered, ") << setting.folders << " folders";
}

class Device : public testing::TestWithParam<Setting> {
 protected:
  std::unique_ptr<BlockDevice> make(std::uint64_t bytes, std::size_t tickets) {
    DeviceOptions options{.bytes = bytes,
                          .tickets = tickets,
                          .engine = GetParam().engine,
                          .direct = GetParam().direct};
    for (int i = 0; i < GetParam().folders; ++i) {
      const fs::path folder = folder_ / std::to_string(i);
      fs::create_directories(folder);
      options.folders.push_back(folder);
    }
    try {
      return offload::make_device(options);
    } catch (const InvalidArgument&) {
      return nullptr;  // no io_uring here
    }
  }
  const Folder folder_;
};

// Any number under way, waited for in any order; every byte comes back.
TEST_P(Device, BytesComeBack) {
  constexpr std::size_t kTickets = 7;
  constexpr std::size_t kLargest = std::size_t{3} << 20;
  constexpr std::size_t kUnit = io::kDirectAlignment;
  const auto device = make(kTickets * kLargest, kTickets);
  if (!device) GTEST_SKIP() << "no io_uring here";
  std::mt19937_64 random(11);
  const Aligned memory(kTickets * kLargest);
  const Aligned read(kLargest);
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < kTickets * kLargest / 8; ++i) {
    const std::uint64_t value = random();
    std::memcpy(memory.data() + i * 8, &value, 8);
  }
  for (std::size_t t = 0; t < kTickets; ++t)
    sizes.push_back((1 + random() % (kLargest / kUnit)) * kUnit);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t t = 0; t < kTickets; ++t)
      device->submit(t, {.way = Transfer::Way::write,
                         .offset = t * kLargest,
                         .data = memory.data() + t * kLargest,
                         .bytes = sizes[t]});
    for (std::size_t t = kTickets; t-- > 0;) device->wait(t);
    for (std::size_t t = 0; t < kTickets; ++t) {
      EXPECT_TRUE(device->done(t));
      device->submit(t, {.way = Transfer::Way::read,
                         .offset = t * kLargest,
                         .data = read.data(),
                         .bytes = sizes[t]});
      device->wait(t);
      EXPECT_EQ(std::memcmp(read.data(), memory.data() + t * kLargest, sizes[t]), 0);
    }
    std::rotate(sizes.begin(), sizes.begin() + 1, sizes.end());
  }
}

TEST_P(Device, ReadingPastItsEndIsAnError) {
  const auto device = make(std::size_t{2} << 20, 2);
  if (!device) GTEST_SKIP() << "no io_uring here";
  const Aligned memory(std::size_t{8} << 20);
  device->submit(1, {.way = Transfer::Way::read,
                     .offset = 0,
                     .data = memory.data(),
                     .bytes = std::size_t{8} << 20});
  EXPECT_THROW(device->wait(1), IoError);
  device->submit(0,
                 {.way = Transfer::Way::read, .offset = 0, .data = memory.data(), .bytes = 4096});
  device->wait(0);  // goes on
}

TEST_P(Device, LeavesNothingBehind) {
  const auto device = make(1 << 20, 1);
  if (!device) GTEST_SKIP() << "no io_uring here";
  for (const auto& entry : fs::recursive_directory_iterator(folder_.path()))
    EXPECT_TRUE(entry.is_directory()) << entry.path();
}

TEST_P(Device, EndsWithTransfersUnderWay) {
  const Aligned memory(std::size_t{16} << 20);
  const auto device = make(std::size_t{16} << 20, 4);
  if (!device) GTEST_SKIP() << "no io_uring here";
  for (std::size_t t = 0; t < 4; ++t)
    device->submit(t, {.way = Transfer::Way::write,
                       .offset = t << 22,
                       .data = memory.data() + (t << 22),
                       .bytes = std::size_t{4} << 20});
}

INSTANTIATE_TEST_SUITE_P(
    All, Device,
    testing::Values(Setting{Engine::threads, true, 1}, Setting{Engine::threads, false, 1},
                    Setting{Engine::threads, true, 3}, Setting{Engine::uring, true, 1},
                    Setting{Engine::uring, false, 1}, Setting{Engine::uring, true, 2}));

std::string refusal(const fs::path& folder, std::uint64_t bytes) {
  try {
    offload::make_device({.folders = {folder}, .bytes = bytes});
  } catch (const IoError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(SwapFolder, ThatCannotBeUsedIsNamed) {
  const Folder folder;
  EXPECT_THAT(refusal(folder / "missing", 4096),
              AllOf(HasSubstr("missing"), HasSubstr("No such file or directory")));
  std::ofstream(folder / "file") << "x";
  EXPECT_THAT(refusal(folder / "file", 4096),
              AllOf(HasSubstr("file"), HasSubstr("Not a directory")));
  EXPECT_THROW(offload::make_device({.bytes = 4096}), InvalidArgument);
}

TEST(SwapFolder, TooFullSaysWhatIsNeededAndFree) {
  const Folder folder;
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 50;
  EXPECT_THAT(refusal(folder.path(), kHuge),
              AllOf(HasSubstr(folder.path()), HasSubstr(std::to_string(kHuge)),
                    HasSubstr("bytes are free")));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

// Each byte of a range has one place, and no two share one.
TEST(SwapFiles, StripesCoverARangeOnce) {
  const Folder folder;
  const SwapFiles files({folder.path(), folder.path(), folder.path()}, std::size_t{7} << 20, false);
  std::set<std::pair<std::size_t, std::uint64_t>> places;
  for (const std::uint64_t offset : {0u, 12288u, 3u << 20}) {
    constexpr std::size_t kBytes = (std::size_t{2} << 20) + 8192;
    std::uint64_t next = 0;
    for (const auto& piece : files.pieces(offset, kBytes)) {
      EXPECT_EQ(piece.start, next);
      next += piece.bytes;
      EXPECT_LE(piece.offset + piece.bytes, files.file(piece.file).size());
    }
    EXPECT_EQ(next, kBytes);
  }
  for (const auto& piece : files.pieces(0, std::size_t{7} << 20)) {
    for (std::uint64_t page = 0; page < piece.bytes; page += 4096)
      EXPECT_TRUE(places.emplace(piece.file, piece.offset + page).second);
  }
}

}  // namespace
}  // namespace ration::test

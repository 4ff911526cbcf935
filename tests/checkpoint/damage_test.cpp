// Whatever is changed in a checkpoint, it is refused with the file's name.

#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "checkpoint/load.hpp"
#include "io/file.hpp"
#include "small.hpp"
#include "support/folder.hpp"

namespace ration::test {
namespace {

namespace fs = std::filesystem;
using checkpoint::Manifest;
using testing::HasSubstr;

constexpr int kRanks = 3;

std::string contents_of(const fs::path& path) {
  return io::read_file(path, std::size_t{64} << 20);
}

void put(const fs::path& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << contents;
}

/// What a load and `verify` do with every byte of a step.
void read_all(const fs::path& folder) {
  const checkpoint::Found found = checkpoint::find(folder, {});
  const Manifest manifest = checkpoint::parse_manifest(found.text, "manifest.json");
  for (int rank = 0; rank < static_cast<int>(manifest.shards.size()); ++rank) {
    const checkpoint::ShardReader reader(folder, manifest, rank);
    reader.check_rest();
    for (const auto& slice : reader.slices()) {
      const checkpoint::ShardReader::Range whole[] = {{0, slice.length}};
      reader.read(slice, whole, [](std::int64_t, std::int64_t, const std::byte*) {});
    }
  }
}

/// The error's text; "accepted" when there is none.
std::string refused(const fs::path& folder) {
  try {
    read_all(folder);
  } catch (const CorruptCheckpoint& error) {
    return error.what();
  } catch (const IoError& error) {
    return error.what();
  }
  return "accepted";
}

class Damage : public testing::Test {
 protected:
  void SetUp() override { step_ = make(root_, 3, "0123456789abcdef0123456789abcdef"); }

  /// A step of `kRanks` files.
  static fs::path make(const Folder& root, std::int64_t step, const std::string& uuid) {
    const fs::path folder = root / fmt::format("step-{:08}", step);
    fs::create_directories(folder);
    Manifest manifest = small_manifest(700);
    manifest.step = step;
    manifest.uuid = uuid;
    for (int rank = 0; rank < kRanks; ++rank) write_shard(folder, manifest, rank, kRanks);
    put(folder / "manifest.json", to_text(manifest));
    return folder;
  }

  Folder root_;
  fs::path step_;
};

TEST_F(Damage, NoneIsAccepted) {
  EXPECT_EQ(refused(step_), "accepted");
}

TEST_F(Damage, OfASingleBitIsRefused) {
  int flips = 0;
  for (const char* name : {"manifest.json", "rank-00000-of-00003.h5", "rank-00002-of-00003.h5"}) {
    const fs::path path = step_ / name;
    const std::string good = contents_of(path);
    const std::size_t bits = good.size() * 8;
    // Every bit of what is small; of the rest as many as time allows, at every place in a byte.
    const std::size_t stride = std::max<std::size_t>(1, bits / 9000) | 1;
    for (std::size_t bit = 0; bit < bits; bit += stride, ++flips) {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      const auto place = static_cast<std::streamoff>(bit / 8);
      const char original = good[bit / 8];
      file.seekp(place);
      file.put(static_cast<char>(original ^ (1 << (bit % 8))));
      file.flush();
      ASSERT_THAT(refused(step_), HasSubstr(name)) << "bit " << bit;
      file.seekp(place);
      file.put(original);
    }
  }
  EXPECT_GE(flips, 20000);
  RecordProperty("flips", flips);
  EXPECT_EQ(refused(step_), "accepted");
}

TEST_F(Damage, OfTheWholeIsRefused) {
  const Folder other_root;
  const fs::path other_run = make(other_root, 3, "ffffffffffffffffffffffffffffffff");
  const fs::path other_step = make(root_, 2, "00000000000000000000000000000000");
  std::mt19937 random(7);
  int damages = 0;
  for (int round = 0; round < 42; ++round) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::string name = checkpoint::shard_name(rank, kRanks);
      const fs::path path = step_ / name;
      const std::string good = contents_of(path);
      const auto expect_refused = [&](const std::string& what) {
        ASSERT_THAT(refused(step_), HasSubstr(name)) << what;
        put(path, good);
        ++damages;
      };
      put(path, good.substr(0, random() % good.size()));
      expect_refused("cut");
      put(path, good + std::string(1 + random() % 5000, round % 2 ? '\0' : 'x'));
      expect_refused("extended");
      std::string moved = good;
      const std::size_t from = random() % (good.size() / 2);
      std::rotate(moved.begin() + static_cast<std::ptrdiff_t>(from),
                  moved.begin() + static_cast<std::ptrdiff_t>(from + 1 + random() % 512),
                  moved.end());
      if (moved != good) {
        put(path, moved);
        expect_refused("moved");
      }
      std::string zeroed = good;
      const std::size_t at = random() % good.size();
      std::fill_n(zeroed.begin() + static_cast<std::ptrdiff_t>(at),
                  std::min<std::size_t>(4096, good.size() - at), '\0');
      if (zeroed != good) {
        put(path, zeroed);
        expect_refused("a block that was never written");
      }
    }
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string name = checkpoint::shard_name(rank, kRanks);
    const fs::path path = step_ / name;
    const std::string good = contents_of(path);
    for (const fs::path& foreign : {step_ / checkpoint::shard_name((rank + 1) % kRanks, kRanks),
                                    other_run / name, other_step / name}) {
      put(path, contents_of(foreign));
      // Ranks 0 and 1 have equally long files.
      ASSERT_THAT(refused(step_), HasSubstr(name)) << foreign;
      put(path, good);
      ++damages;
    }
    fs::remove(path);
    ASSERT_THAT(refused(step_), HasSubstr(name));
    put(path, good);
    ++damages;
  }
  const std::string manifest = contents_of(step_ / "manifest.json");
  for (const fs::path& foreign : {other_run, other_step}) {
    put(step_ / "manifest.json", contents_of(foreign / "manifest.json"));
    ASSERT_NE(refused(step_), "accepted") << foreign;
    ++damages;
  }
  fs::remove(step_ / "manifest.json");
  ASSERT_THAT(refused(step_), HasSubstr("manifest.json"));
  put(step_ / "manifest.json", manifest);
  EXPECT_GE(++damages, 500);
  EXPECT_EQ(refused(step_), "accepted");
}

}  // namespace
}  // namespace ration::test

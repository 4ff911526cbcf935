// What HDF5 and the system do to the making of a shard: a full disk, names that are taken, a pipe
// in a file's place.

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <ration/error.hpp>

#include "checkpoint/shard.hpp"
#include "io/file.hpp"

namespace {

std::atomic<int> writes_left{-1};  ///< before the disk is full; -1: it never is

}  // namespace

// Instead of the C library's, in this program and in libhdf5.
extern "C" ssize_t pwrite(int file, const void* from, size_t size, off_t offset) {
  if (writes_left == 0) {
    errno = ENOSPC;
    return -1;
  }
  if (writes_left > 0) --writes_left;
  return syscall(SYS_pwrite64, file, from, size, offset);
}

namespace ration::checkpoint {
namespace {

constexpr std::int64_t kElements = 5000;

class ShardFaults : public testing::Test {
 protected:
  ShardFaults() {
    std::string name = testing::TempDir() + "shard_faults_XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~ShardFaults() override {
    writes_left = -1;
    std::filesystem::remove_all(folder_);
  }

  static Manifest manifest(const std::string& optimizer = "main") {
    FlatEntry flat;
    flat.length = kElements;
    flat.kinds = {{"parameter", DType::f32}, {"exp_avg", DType::f32}};
    flat.parameters = {{.name = "weight", .shape = {kElements}}};
    Manifest made;
    made.uuid = std::string(32, 'a');
    made.optimizers = {{.name = optimizer, .units = {{.name = "unit", .flats = {flat}}}}};
    return made;
  }

  [[nodiscard]] std::filesystem::path path() const { return folder_ / shard_name(0, 1); }

  void save(Manifest& manifest) const {
    std::filesystem::remove(path());
    ShardWriter writer(path(), manifest, 0, 1, {{0, 0, 0, kElements}, {0, 1, 0, kElements}});
    const Fill fill = [](std::size_t, std::int64_t, std::int64_t count, std::byte* to) {
      std::memset(to, 1, static_cast<std::size_t>(count) * sizeof(float));
    };
    while (!writer.advance(fill, std::chrono::steady_clock::now())) {
    }
    manifest.shards = {writer.entry()};
  }

  [[nodiscard]] std::int64_t elements_read(const Manifest& manifest) const {
    const ShardReader reader(folder_, manifest, 0);
    reader.check_rest();
    std::int64_t read = 0;
    for (const PlacedSlice& slice : reader.slices()) {
      const ShardReader::Range all{0, slice.length};
      reader.read(slice, {&all, 1},
                  [&](std::int64_t, std::int64_t count, const std::byte*) { read += count; });
    }
    return read;
  }

  [[nodiscard]] bool hdf5_finds(const std::string& dataset) const {
    const hid_t file = H5Fopen(path().c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0) return false;
    const hid_t set = H5Dopen2(file, dataset.c_str(), H5P_DEFAULT);
    if (set >= 0) H5Dclose(set);
    H5Fclose(file);
    return set >= 0;
  }

  std::filesystem::path folder_;
};

// HDF5 1.10 that has met a failed write makes no file any more, and crashes at exit.
TEST_F(ShardFaults, AFullDiskIsNamedAndTheNextSaveOfTheProcessWorks) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [this] {
    int failures = 0;
    for (int writes = 0;; ++writes) {
      Manifest full = manifest();
      writes_left = writes;
      try {
        save(full);
        if (writes_left > 0) break;  // was not needed any more
      } catch (const IoError& error) {
        const bool named = std::string_view(error.what()).starts_with(path().string()) &&
                           std::string_view(error.what()).ends_with("No space left on device");
        if (!named) std::exit(2);
        ++failures;
      }
      writes_left = -1;
      Manifest next = manifest();
      save(next);
      if (elements_read(next) != 2 * kElements) std::exit(3);
      if (!hdf5_finds("/main/unit/f32.trainable/exp_avg")) std::exit(4);
    }
    std::exit(failures > 5 ? 0 : 5);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

TEST_F(ShardFaults, AnOptimizerMayBeCalledAsATableIs) {
  for (const char* name : {"index", "checksums"}) {
    Manifest named = manifest(name);
    save(named);
    EXPECT_EQ(elements_read(named), 2 * kElements) << name;
  }
  EXPECT_TRUE(hdf5_finds("/%63hecksums/unit/f32.trainable/parameter"));
}

TEST_F(ShardFaults, APipeInAFilesPlaceIsRefusedAtOnce) {
  Manifest saved = manifest();
  save(saved);
  std::filesystem::remove(path());
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  try {
    static_cast<void>(elements_read(saved));
    ADD_FAILURE() << "a pipe was read";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith(path().string()));
    EXPECT_THAT(error.what(), testing::HasSubstr("no regular file"));
  }
}

TEST_F(ShardFaults, HDF5PrintsNothingOnAnyThread) {
  const auto fail = [this] {
    std::filesystem::remove(path());
    const std::vector<Slice> twice = {{0, 0, 0, 1}, {0, 0, 1, 1}};
    EXPECT_THROW(ShardWriter(path(), manifest(), 0, 1, twice), IoError);
  };
  testing::internal::CaptureStderr();
  fail();
  std::thread(fail).join();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace ration::checkpoint

// Whatever was changed in a committed step is found and named.

#include "checkpoint/verify.hpp"

#include <fstream>

#include "made.hpp"
#include "support/throws.hpp"

namespace ration::test {
namespace {

std::vector<std::string> broken_in(const Made& made) {
  std::vector<std::string> files;
  for (const ck::Fault& fault : ck::verify(made.folder).faults) {
    EXPECT_THAT(fault.reason, testing::Not(testing::HasSubstr(fault.file)));
    files.push_back(std::filesystem::path(fault.file).filename().string());
  }
  return files;
}

TEST(Verify, SoundOnesHaveNoFault) {
  for (const int world : {1, 3, 12}) {
    const Made made(world);
    const ck::Verdict verdict = ck::verify(made.folder);
    EXPECT_TRUE(verdict.faults.empty());
    std::uint64_t bytes = 0;
    for (const ck::FlatPlace& place : flats_of(made.manifest)) {
      const ck::FlatEntry& flat = ck::flat_at(made.manifest, place);
      for (const ck::KindEntry& kind : flat.kinds)
        bytes += static_cast<std::uint64_t>(flat.length) * size_of(kind.dtype);
    }
    EXPECT_EQ(verdict.bytes, bytes);
  }
}

TEST(Verify, OneBitAnywhereNamesItsFile) {
  const Made made(3);
  const auto file = made.folder / ck::shard_name(1, 3);
  const std::uint64_t size = std::filesystem::file_size(file);
  for (std::uint64_t offset = 0; offset < size; offset += 37) {
    flip(file, offset);
    ASSERT_EQ(broken_in(made), std::vector{file.filename().string()}) << offset;
    flip(file, offset);
  }
  EXPECT_TRUE(broken_in(made).empty());
}

TEST(Verify, EveryBrokenFileIsNamed) {
  const Made made(5);
  flip(made.folder / ck::shard_name(1, 5), 0);
  std::filesystem::resize_file(made.folder / ck::shard_name(2, 5), 10);
  std::filesystem::remove(made.folder / ck::shard_name(4, 5));
  EXPECT_EQ(broken_in(made),
            (std::vector{ck::shard_name(1, 5), ck::shard_name(2, 5), ck::shard_name(4, 5)}));
}

TEST(Verify, SwappedShardsAreBroken) {
  const Made made(3);
  std::filesystem::rename(made.folder / ck::shard_name(1, 3), made.folder / "other");
  std::filesystem::rename(made.folder / ck::shard_name(2, 3), made.folder / ck::shard_name(1, 3));
  std::filesystem::rename(made.folder / "other", made.folder / ck::shard_name(2, 3));
  EXPECT_EQ(broken_in(made), (std::vector{ck::shard_name(1, 3), ck::shard_name(2, 3)}));
}

TEST(Verify, TheManifestIsNamed) {
  const Made made(2);
  flip(made.folder / ck::kManifestName, 40);
  EXPECT_EQ(broken_in(made), std::vector<std::string>{"manifest.json"});
}

ck::Manifest one_slice(std::int64_t length) {
  ck::OptimizerEntry optimizer = made_optimizer();
  optimizer.units = {{.name = "unit",
                      .flats = {flat_of(DType::f32, true, {{"parameter"}},
                                        {{.name = "weight", .shape = {length}}})}}};
  return made_manifest({optimizer});
}

// Shards that are sound each by itself but hold an element twice, or not at all.
TEST(Verify, EveryElementIsHeldOnce) {
  for (const auto& [start, said] : {std::pair{100, "in no shard"}, {50, "in two shards"}}) {
    const Folder root;
    ck::Manifest manifest = one_slice(164);
    ck::SaveFolder folder(root.path(), 7, 0);
    manifest.uuid = folder.nonce();
    std::vector<ck::ShardEntry> shards;
    const std::vector<ck::Slice> slices = {{.length = 64}, {.start = start, .length = 164 - start}};
    for (int rank = 0; rank < 2; ++rank) {
      ck::ShardWriter writer(folder.path() / ck::shard_name(rank, 2), manifest, rank, 2,
                             {slices[static_cast<std::size_t>(rank)]});
      while (!writer.advance(
          [](std::size_t, std::int64_t, std::int64_t count, std::byte* to) {
            std::memset(to, 0, static_cast<std::size_t>(count) * 4);
          },
          std::chrono::steady_clock::time_point::max())) {
      }
      shards.push_back(writer.entry());
    }
    manifest.shards = shards;
    const ck::StepFolder step = folder.commit(ck::to_text(manifest));
    const ck::Verdict verdict = ck::verify(step.path);
    ASSERT_EQ(verdict.faults.size(), 1u);
    EXPECT_THAT(verdict.faults[0].reason, testing::HasSubstr(said));
  }
}

}  // namespace
}  // namespace ration::test

// A checkpoint written again for another number of ranks.

#include "checkpoint/reshard.hpp"

#include "made.hpp"
#include "resume/saved.hpp"

namespace ration::test {
namespace {

// All slices of a rank's file with their bytes.
std::vector<std::pair<ck::Slice, std::vector<std::byte>>> contents(
    const std::filesystem::path& folder, int rank) {
  const ck::Manifest manifest = ck::read_manifest(folder);
  const ck::ShardReader reader(folder, manifest, rank);
  std::vector<std::pair<ck::Slice, std::vector<std::byte>>> result;
  for (const ck::PlacedSlice& slice : reader.slices()) {
    std::vector<std::byte> bytes;
    const ck::ShardReader::Range whole{.first = 0, .count = slice.length};
    reader.read(slice, std::span(&whole, 1),
                [&](std::int64_t, std::int64_t count, const std::byte* from) {
                  bytes.insert(bytes.end(), from,
                               from + static_cast<std::size_t>(count) * size_of(slice.dtype));
                });
    result.emplace_back(slice, std::move(bytes));
  }
  return result;
}

TEST(ReshardTool, IsWhatThatManyRanksWouldHaveSaved) {
  for (const auto& [from, to] : {std::pair{1, 12}, {12, 5}, {4, 1}, {3, 3}}) {
    SCOPED_TRACE(fmt::format("{} to {}", from, to));
    const Made made(from);
    const Made direct(to);
    const Folder output;
    const ck::StepFolder folder = ck::reshard(made.folder, made.manifest, output.path(), to);
    EXPECT_EQ(folder.step, made.manifest.step);
    const ck::Manifest manifest = ck::read_manifest(folder.path);
    EXPECT_EQ(manifest.extra, made.manifest.extra);
    EXPECT_NE(manifest.uuid, made.manifest.uuid);
    EXPECT_EQ(manifest.shards.size(), static_cast<std::size_t>(to));
    for (int rank = 0; rank < to; ++rank)
      EXPECT_EQ(contents(folder.path, rank), contents(direct.folder, rank));
  }
}

TEST(ReshardTool, ManyBlocks) {
  ck::OptimizerEntry optimizer = made_optimizer();
  optimizer.units = {{.name = "wide",
                      .flats = {flat_of(DType::f32, true, {{"parameter"}, {"exp_avg"}},
                                        {{.name = "large", .shape = {3'500'001}}})}}};
  const Made made(3, made_manifest({optimizer}));
  const Made direct(2, made_manifest({optimizer}));
  const Folder output;
  const ck::StepFolder folder = ck::reshard(made.folder, made.manifest, output.path(), 2);
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_TRUE(contents(folder.path, rank) == contents(direct.folder, rank));
}

TEST(ReshardTool, LoadsAsTheOriginal) {
  const Folder root;
  const Folder again;
  const Snapshot saved = train_and_save(4, 3, resumable(3), root.path());
  const auto folder = ck::list_steps(root.path()).back().path;
  ck::reshard(folder, ck::read_manifest(folder), again.path(), 3);
  with_loaded(3, resumable(1), again.path(), [&](TinyTrainer& trainer, const LoadReport& report) {
    EXPECT_EQ(report.world, 3);
    EXPECT_EQ(snapshot_of(trainer.optimizer()), saved);
  });
}

TEST(ReshardTool, ADamagedShardLeavesNothing) {
  const Made made(3);
  flip(made.folder / ck::shard_name(2, 3), offset_in(made, 2, 1));
  const Folder output;
  EXPECT_THAT(
      thrown<CorruptCheckpoint>([&] { ck::reshard(made.folder, made.manifest, output.path(), 2); }),
      testing::HasSubstr("rank-00002-of-00003.h5"));
  EXPECT_TRUE(names_in(output.path()).empty());
}

}  // namespace
}  // namespace ration::test

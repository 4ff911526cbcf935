// How two checkpoints differ.

#include "checkpoint/compare.hpp"

#include "checkpoint/reshard.hpp"
#include "made.hpp"
#include "resume/saved.hpp"

namespace ration::test {
namespace {

ck::Comparison compared(const Made& a, const Made& b) {
  return ck::compare({a.folder, a.manifest}, {b.folder, b.manifest});
}

std::vector<std::string> lines(const ck::Comparison& comparison) {
  std::vector<std::string> result;
  for (const ck::Difference& d : comparison.differences)
    result.push_back(fmt::format("{}: {}: {}", d.name, d.what, d.text));
  return result;
}

TEST(Diff, NothingBetweenWorldSizes) {
  for (const auto& [from, to] : {std::pair{1, 12}, {12, 5}, {4, 4}}) {
    const ck::Comparison comparison = compared(Made(from), Made(to));
    EXPECT_TRUE(comparison.differences.empty()) << lines(comparison).front();
    EXPECT_EQ(comparison.parameters, 7);
    EXPECT_EQ(comparison.arrays, 2 * 3 + 4 * 2 + 1);
  }
}

// One flipped bit of a value, written with its checksum.
TEST(Diff, CountsAndMeasuresWhatDiffers) {
  const auto trained = [](int world, int steps, int stage) {
    auto folder = std::make_unique<Folder>();
    train_and_save(world, steps, resumable(stage), folder->path());
    return folder;
  };
  const auto open = [](const Folder& root) {
    const auto path = ck::list_steps(root.path()).back().path;
    return std::pair(path, ck::read_manifest(path));
  };
  const auto a = trained(2, 3, 1);
  const auto b = trained(3, 4, 3);
  const auto [folder_a, manifest_a] = open(*a);
  const auto [folder_b, manifest_b] = open(*b);
  const ck::Comparison comparison = ck::compare({folder_a, manifest_a}, {folder_b, manifest_b});
  bool weights = false;
  for (const ck::Difference& d : comparison.differences) {
    if (d.what != "weights") continue;
    weights = true;
    EXPECT_GT(d.count, 0);
    EXPECT_LE(d.count, d.elements);
    EXPECT_GT(d.largest, 0);
    EXPECT_LT(d.largest, 1);
  }
  EXPECT_TRUE(weights);
  EXPECT_THAT(lines(comparison), testing::Contains("optimizer: steps: 3 and 4"));
}

// fp32 weights against masters of 16-bit ones.
TEST(Diff, MastersAreWeights) {
  const auto saved = [](const TinyTrainer::Options& options) {
    auto folder = std::make_unique<Folder>();
    train_and_save(2, 0, options, folder->path());
    return folder;
  };
  Config bf16;
  bf16.precision = Precision::bf16();
  const auto a = saved(resumable(1));
  const auto b = saved(resumable(3, bf16));
  const auto folder_a = ck::list_steps(a->path()).back().path;
  const auto folder_b = ck::list_steps(b->path()).back().path;
  const ck::Manifest manifest_a = ck::read_manifest(folder_a);
  const ck::Manifest manifest_b = ck::read_manifest(folder_b);
  for (const ck::Difference& d :
       ck::compare({folder_a, manifest_a}, {folder_b, manifest_b}).differences) {
    EXPECT_NE(d.what, "weights") << d.name << " " << d.count << " of " << d.elements;
  }
}

TEST(Diff, WhatOnlyOneHas) {
  ck::OptimizerEntry other = made_optimizer();
  other.units[1].flats[0].parameters[1].name = "offset";
  other.units[1].flats[0].parameters[0].shape = {65, 22};
  other.units[0].flats[0].kinds.pop_back();
  other.units[0].flats[0].parameters[0].step_count = 8;
  EXPECT_THAT(lines(compared(Made(2), Made(3, made_manifest({other})))),
              testing::UnorderedElementsAre(
                  "bias: parameter: only in the first", "offset: parameter: only in the second",
                  "weight: shape: [130, 11] and [65, 22]", "wte: step count: 7 and 8",
                  "wte: exp_avg_sq: only in the first", "wpe/x: exp_avg_sq: only in the first"));
  EXPECT_THAT(lines(compared(Made(2), Made(2, made_manifest({made_optimizer("another")})))),
              testing::ElementsAre("another: optimizer: only in the second",
                                   "optimizer: optimizer: only in the first"));
}

TEST(Diff, ADamagedOneIsAnError) {
  const Made a(2);
  const Made b(3);
  flip(b.folder / ck::shard_name(2, 3), offset_in(b, 2, 1));
  EXPECT_THAT(thrown<CorruptCheckpoint>([&] { compared(a, b); }),
              testing::HasSubstr("rank-00002-of-00003.h5"));
}

}  // namespace
}  // namespace ration::test

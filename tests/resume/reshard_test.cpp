// Saved at one world size, stage and precision, loaded at another.

#include "saved.hpp"

namespace ration::test {
namespace {

Snapshot loaded_at(int ranks, const TinyTrainer::Options& options, const std::string& root) {
  PerRank<Snapshot> seen(ranks);
  with_loaded(ranks, options, root, [&](TinyTrainer& trainer, const LoadReport&) {
    seen[trainer.process_group()] = snapshot_of(trainer.optimizer());
  });
  EXPECT_TRUE(seen.alike());
  return seen.first();
}

Snapshot ten_steps_later(int ranks, const TinyTrainer::Options& options, const std::string& root) {
  Snapshot result;
  with_loaded(ranks, options, root, [&](TinyTrainer& trainer, const LoadReport&) {
    for (int i = 0; i < 10; ++i) trainer.step();
    const Snapshot mine = snapshot_of(trainer.optimizer());
    if (trainer.process_group().rank() == 0) result = mine;
  });
  return result;
}

TEST(Reshard, FromEveryWorldSizeToEveryOther) {
  for (int saved_at = 1; saved_at <= 8; ++saved_at) {
    const Folder folder;
    const Snapshot saved = train_and_save(saved_at, 3, resumable(saved_at % 4), folder.path());
    for (int ranks = 1; ranks <= 8; ++ranks) {
      SCOPED_TRACE(fmt::format("{} ranks to {}", saved_at, ranks));
      EXPECT_EQ(loaded_at(ranks, resumable((saved_at + ranks) % 4), folder.path()), saved);
    }
  }
}

TEST(Reshard, FromTwelveToFive) {
  const Folder folder;
  const Snapshot saved = train_and_save(12, 3, resumable(3), folder.path());
  EXPECT_EQ(loaded_at(5, resumable(1), folder.path()), saved);
}

// Whatever the stage it is loaded at, the next steps are the same.
TEST(Reshard, TenStepsLaterEveryStageIsTheSame) {
  for (const int ranks : {1, 3, 4}) {
    const Folder folder;
    train_and_save(2, 3, resumable(2), folder.path());
    std::optional<Snapshot> expected;
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} ranks, stage {}", ranks, stage));
      const Snapshot later = ten_steps_later(ranks, resumable(stage), folder.path());
      if (!expected) expected = later;
      EXPECT_EQ(later, *expected);
    }
  }
}

TEST(Reshard, BetweenKindsOfMaster) {
  Config whole;
  whole.precision = Precision::bf16();
  Config split = whole;
  split.precision.master = Master::split;
  for (const auto& [from, to] : {std::pair{whole, split}, {split, whole}}) {
    const Folder folder;
    const Snapshot saved = train_and_save(4, 3, resumable(1, from), folder.path());
    EXPECT_EQ(loaded_at(3, resumable(3, to), folder.path()), saved);
  }
}

// fp32 weights become masters; the 16-bit weights are their rounding.
TEST(Reshard, FromFp32ToSixteenBitsAndBack) {
  const Folder folder;
  const Snapshot saved = train_and_save(2, 3, resumable(3), folder.path());
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const Master master : {Master::fp32, Master::split}) {
      if (type == DType::f16 && master == Master::split) continue;
      Config config;
      config.precision = {.parameter = type, .master = master};
      const Snapshot loaded = loaded_at(3, resumable(1, config), folder.path());
      for (const auto& [name, bits] : saved.bits) {
        if (name.ends_with("/parameter")) continue;
        EXPECT_EQ(loaded.bits.at(name), bits) << name;
      }
      const Folder second;
      with_loaded(3, resumable(1, config), folder.path(),
                  [&](TinyTrainer& trainer, const LoadReport&) {
                    trainer.optimizer().save(second.path());
                  });
      EXPECT_EQ(loaded_at(2, resumable(0), second.path()), saved);
    }
  }
}

TEST(Reshard, MomentsOfSixteenBits) {
  Config bf16_moments;
  bf16_moments.precision.moments = DType::bf16;
  const Folder folder;
  const Snapshot saved = train_and_save(4, 3, resumable(3, bf16_moments), folder.path());
  EXPECT_EQ(loaded_at(3, resumable(1, bf16_moments), folder.path()), saved);
  EXPECT_EQ(loaded_at(2, resumable(2), folder.path()), saved);  // widened
}

}  // namespace
}  // namespace ration::test

// State on disk: the same bits as in memory, whatever the tiles.

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <sys/resource.h>

#include "engine_test.hpp"
#include "support/folder.hpp"
#include "support/throws.hpp"

namespace ration::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Of many tiles a rank, some within a parameter, some over several units.
std::vector<TinyUnit> tiled_model() {
  return {{"a", {{"a.w", {70, 64}}, {"a.b", {70}}}, true},
          {"b", {{"b.w", {101, 97}}}},
          {"c", {{"c.w", {33}}, {"c.none", {0, 5}}}},
          {"none", {{"none.w", {0}}}},
          {"d", {{"d.w", {64, 90}}, {"d.s", {}}}}};
}

struct Tiling {
  std::size_t elements = 0;
  std::uint64_t resident = 0;
};

TinyTrainer::Options tiled(int stage, const Precision& precision = {}) {
  TinyTrainer::Options options;
  options.config.stage = stage;
  options.config.precision = precision;
  options.model = tiled_model();
  options.clip = 1.0;
  return options;
}

TinyTrainer::Options on_disk(TinyTrainer::Options options, const Folder& folder,
                             const Tiling& tiling = {.elements = 1024}) {
  options.config.offload = {.optimizer_state = Tier::disk,
                            .directories = {folder.path()},
                            .resident_bytes = tiling.resident};
  options.config.tile_elements = tiling.elements;
  return options;
}

/// All that a step may change, after `steps` of them.
Snapshot trained(int ranks, const TinyTrainer::Options& options, int steps = 5,
                 const ThreadsOptions& threads = {}) {
  Snapshot result;
  with_ranks(
      ranks,
      [&](const ProcessGroup& group) {
        TinyTrainer trainer(group, options);
        for (int i = 0; i < steps; ++i) trainer.step();
        const Snapshot mine = snapshot_of(trainer.optimizer());
        if (group.rank() == 0) result = mine;
      },
      threads);
  return result;
}

const std::vector<Precision> kPrecisions = {Precision::fp32(),
                                            Precision::bf16(),
                                            {.parameter = DType::bf16, .master = Master::split},
                                            {.parameter = DType::bf16, .moments = DType::bf16},
                                            Precision::fp16()};

TEST(OnDisk, GivesTheSameBits) {
  const Folder folder;
  for (const Precision& precision : kPrecisions) {
    for (const int ranks : {1, 3, 4}) {
      const Snapshot expected = trained(ranks, tiled(1, precision));
      for (const int stage : {0, 1, 2, 3}) {
        for (const Tiling& tiling :
             {Tiling{1024, 0}, Tiling{3000, 0}, Tiling{1024, 20000}, Tiling{0, 0}}) {
          SCOPED_TRACE(testing::Message()
                       << ranks << " ranks, stage " << stage << ", tiles of " << tiling.elements
                       << ", " << tiling.resident << " resident");
          EXPECT_EQ(trained(ranks, on_disk(tiled(stage, precision), folder, tiling)), expected);
        }
      }
    }
  }
}

TEST(OnDisk, GivesTheSameBitsWithEveryRule) {
  const Folder folder;
  for (const Rule& rule : std::vector<Rule>{SGD{.learning_rate = 0.01}, SGD{.momentum = 0.9},
                                            Adagrad{}, Lion{}, Adam{}}) {
    TinyTrainer::Options options = tiled(3);
    options.rule = rule;
    EXPECT_EQ(trained(2, on_disk(options, folder)), trained(2, options));
  }
}

TEST(OnDisk, GivesTheSameBitsWithStreamsAndSeveralMicroSteps) {
  const Folder folder;
  TinyTrainer::Options options = tiled(3, Precision::bf16());
  options.config.micro_steps = options.micro_steps = 3;
  const Snapshot expected = trained(3, options);
  EXPECT_EQ(trained(3, on_disk(options, folder), 5, kStreams), expected);
  options.config.overlap = false;
  EXPECT_EQ(trained(3, on_disk(options, folder), 5, kStreams), expected);
}

// Tiles of different sizes on ranks of one job; the units are finished in one order all the same.
TEST(OnDisk, TilesMayDifferBetweenRanks) {
  const Folder folder;
  const Snapshot expected = trained(3, tiled(2));
  with_ranks(3, [&](const ProcessGroup& group) {
    const Tiling tiling{.elements = 1024 * (1 + static_cast<std::size_t>(group.rank()))};
    TinyTrainer trainer(group, on_disk(tiled(2), folder, tiling));
    for (int i = 0; i < 5; ++i) trainer.step();
    EXPECT_EQ(snapshot_of(trainer.optimizer()), expected);
  });
}

TEST(OnDisk, ThreadsDoWhatIoUringDoes) {
  const Folder folder;
  const Snapshot expected = trained(2, tiled(3));
  for (const char* io : {"threads", "buffered"}) {
    setenv("RATION_IO", io, 1);
    EXPECT_EQ(trained(2, on_disk(tiled(3), folder)), expected) << io;
    unsetenv("RATION_IO");
  }
}

// A step that is skipped, and a unit that nobody uses in every other step.
TEST(OnDisk, WhatIsNotUpdatedKeepsItsBits) {
  const Folder folder;
  const auto run = [&](TinyTrainer::Options options) {
    options.gradient = [](int step, int micro, int rank, int parameter, std::int64_t element,
                          float weight) {
      if (step == 2 && rank == 1 && element == 5) return std::numeric_limits<float>::infinity();
      return default_gradient(step, micro, rank, parameter, element, weight);
    };
    Snapshot result;
    with_ranks(2, [&](const ProcessGroup& group) {
      TinyTrainer trainer(group, options);
      for (int i = 0; i < 6; ++i) {
        const MicroStep micro = trainer.optimizer().micro_step();
        for (const Unit& unit : trainer.units()) {
          const Gathered weights = unit.gather();
        }
        micro.begin_backward();
        for (const Unit& unit : reversed(trainer.units())) {
          if (i % 2 == 0 || unit.name() != "b") trainer.backward(unit, 0);
        }
        trainer.count_step();
        EXPECT_EQ(trainer.optimizer().step().skipped, i == 2);
      }
      const Snapshot mine = snapshot_of(trainer.optimizer());
      if (group.rank() == 0) result = mine;
    });
    return result;
  };
  const Snapshot expected = run(tiled(3));
  EXPECT_EQ(expected.steps.at("b.w"), 2);
  EXPECT_EQ(run(on_disk(tiled(3), folder)), expected);
}

TEST(OnDisk, SavesAndLoadsAsInMemory) {
  const Folder folder;
  for (const Precision& precision : kPrecisions) {
    for (const bool disk_first : {true, false}) {
      const Folder root;
      const auto options = [&](bool disk, int stage) {
        const TinyTrainer::Options plain = tiled(stage, precision);
        return disk ? on_disk(plain, folder) : plain;
      };
      Snapshot at_save;
      with_ranks(3, [&](const ProcessGroup& group) {
        TinyTrainer trainer(group, options(disk_first, 3));
        for (int i = 0; i < 3; ++i) trainer.step();
        trainer.optimizer().save(root.path());
        trainer.step();  // the walk goes on from wherever the save has left the tiles
        const Snapshot mine = snapshot_of(trainer.optimizer());
        if (group.rank() == 0) at_save = mine;
      });
      TinyTrainer::Options loading = options(!disk_first, 1);
      loading.initialize = false;
      with_ranks(3, [&](const ProcessGroup& group) {
        TinyTrainer trainer(group, loading);
        trainer.set_steps(static_cast<int>(trainer.optimizer().load(root.path()).step));
        trainer.step();
        EXPECT_EQ(snapshot_of(trainer.optimizer()), at_save);
      });
    }
  }
}

TEST(OnDisk, AsynchronousSavesAreOfTheMoment) {
  const Folder folder;
  const Folder root;
  TinyTrainer::Options options = on_disk(tiled(2), folder);
  options.config.asynchronous_save = true;
  Snapshot at_save;
  with_ranks(2, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, options);
    for (int i = 0; i < 3; ++i) trainer.step();
    const Snapshot mine = snapshot_of(trainer.optimizer());
    if (group.rank() == 0) at_save = mine;
    trainer.optimizer().save(root.path(), {.asynchronous = true});
    for (int i = 0; i < 3; ++i) trainer.step();
    trainer.optimizer().wait_saved();
    trainer.optimizer().load(root.path());
    const Snapshot loaded = snapshot_of(trainer.optimizer());
    if (group.rank() == 0) {
      EXPECT_EQ(loaded, at_save);
    }
  });
}

TEST(OnDisk, IsCarriedThroughARelayout) {
  const Folder folder;
  const auto run = [&](const TinyTrainer::Options& options) {
    Snapshot result;
    with_ranks(3, [&](const ProcessGroup& group) {
      TinyTrainer trainer(group, options);
      for (int i = 0; i < 3; ++i) trainer.step();
      trainer.optimizer().set_trainable(trainer.units()[0]["a.b"], false);
      trainer.optimizer().relayout(normal(0.1, 3));
      const Snapshot mine = snapshot_of(trainer.optimizer());
      if (group.rank() == 0) result = mine;
    });
    return result;
  };
  EXPECT_EQ(run(on_disk(tiled(3), folder)), run(tiled(3)));
}

TEST(OnDisk, IsPlannedToTheByte) {
  const Folder folder;
  with_ranks(2, [&](const ProcessGroup& group) {
    TinyTrainer in_memory(group, tiled(3, Precision::bf16()));
    TinyTrainer trainer(group, on_disk(tiled(3, Precision::bf16()), folder));
    const MemoryReport report = trainer.optimizer().memory();
    EXPECT_EQ(report.planned, report.allocated);
    const auto kind = static_cast<std::size_t>(MemoryKind::optimizer_state);
    const std::uint64_t whole = in_memory.optimizer().memory().planned[kind];
    EXPECT_GE(report.disk, whole * 9 / 10);
    EXPECT_LT(report.disk, whole + whole / 2);
    EXPECT_LT(report.planned[kind], whole * 9 / 10);
    EXPECT_THAT(report.table(), HasSubstr("on disk"));
    EXPECT_EQ(in_memory.optimizer().memory().disk, 0U);
  });
}

TEST(OnDisk, LeavesNothingInItsFolder) {
  const Folder folder;
  trained(2, on_disk(tiled(1), folder));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(OnDisk, AFolderThatFailsOneRankIsAnErrorOfAll) {
  const Folder folder;
  std::ofstream(folder / "file") << "x";
  for (const char* name : {"missing", "file"}) {
    with_ranks(3, [&](const ProcessGroup& group) {
      TinyTrainer::Options options = on_disk(tiled(2), folder);
      if (group.rank() == 1) options.config.offload.directories = {folder / name};
      try {
        const TinyTrainer trainer(group, options);
        ADD_FAILURE() << "nothing was thrown";
      } catch (const IoError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1"), HasSubstr(folder / name)));
      }
    });
  }
}

/// Files may not be written beyond their first page, as if the disk had failed.
class NoWrites {
 public:
  NoWrites() {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = 4096;
    setrlimit(RLIMIT_FSIZE, &limit);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
  }
  ~NoWrites() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  NoWrites(const NoWrites&) = delete;
  NoWrites& operator=(const NoWrites&) = delete;

 private:
  rlimit before_ = {};
  void (*handler_)(int) = nullptr;
};

TEST(OnDisk, AfterAWriteThatFailsInAStepALoadGoesOn) {
  const Folder folder;
  const Folder root;
  const Snapshot expected = trained(2, tiled(2), 3);
  for (const char* io : {"", "threads"}) {
    setenv("RATION_IO", io, 1);
    with_ranks(2, [&](const ProcessGroup& group) {
      TinyTrainer trainer(group, on_disk(tiled(2), folder));
      trainer.step();
      trainer.optimizer().save(root.path());
      std::optional<NoWrites> broken;
      if (group.rank() == 0) broken.emplace();
      group.barrier();
      try {
        for (int i = 0; i < 2; ++i) trainer.step();
        ADD_FAILURE() << "nothing was thrown";
      } catch (const IoError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr(folder.path()), HasSubstr("File too large")));
      }
      EXPECT_THROW(trainer.optimizer().micro_step(), Error);
      EXPECT_THROW(static_cast<void>(trainer.optimizer().digest()), Error);
      group.barrier();
      broken.reset();
      group.barrier();
      trainer.set_steps(static_cast<int>(trainer.optimizer().load(root.path()).step));
      for (int i = 0; i < 2; ++i) trainer.step();
      EXPECT_EQ(snapshot_of(trainer.optimizer()), expected);
    });
    unsetenv("RATION_IO");
  }
}

TEST(OnDisk, WantsAFolder) {
  TinyTrainer::Options options = tiled(2);
  options.config.offload.optimizer_state = Tier::disk;
  with_ranks(1, [&](const ProcessGroup& group) {
    try {
      const TinyTrainer trainer(group, options);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("offload.directories"));
    }
  });
}

TEST(OnDisk, IsTheSameChoiceOnEveryRank) {
  const Folder folder;
  with_ranks(2, [&](const ProcessGroup& group) {
    EXPECT_THROW(TinyTrainer(group, group.rank() == 1 ? on_disk(tiled(2), folder) : tiled(2)),
                 InvalidArgument);
  });
}

}  // namespace
}  // namespace ration::test

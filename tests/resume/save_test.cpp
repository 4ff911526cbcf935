// The collective save itself, over parts that are slow, fail or are missing.

#include <future>
#include <set>
#include <thread>

#include "checkpoint/load.hpp"
#include "checkpoint/save.hpp"
#include "comm/communicator.hpp"
#include "saved.hpp"
#include "support/deadline.hpp"

namespace ration::test {
namespace {

using namespace std::chrono_literals;
using testing::Each;
using testing::HasSubstr;

// One f32 flat of `blocks` checksum blocks a rank.
class FakePart : public checkpoint::SavedPart {
 public:
  FakePart(int rank, int world, int blocks) : rank_(rank) {
    const std::int64_t elements = blocks * static_cast<std::int64_t>(checkpoint::kBlockBytes / 4);
    shard_ = elements;
    entry_.name = "optimizer";
    entry_.groups.push_back({.rule = "AdamW"});
    checkpoint::FlatEntry flat{.length = elements * world,
                               .kinds = {{.name = "parameter"}},
                               .parameters = {{.name = "w", .shape = {elements * world}}}};
    entry_.units.push_back({.name = "unit", .flats = {flat}});
  }
  [[nodiscard]] const checkpoint::OptimizerEntry& describe() const override { return entry_; }
  [[nodiscard]] std::vector<checkpoint::Slice> slices() const override {
    return {{.start = shard_ * rank_, .length = shard_}};
  }
  void read(int, int, std::int64_t first, std::int64_t count, std::byte* to) const override {
    if (before_read) before_read();
    auto* values = reinterpret_cast<float*>(to);
    for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>((first + i) % 1000);
  }
  std::function<void()> before_read;

 private:
  int rank_;
  std::int64_t shard_ = 0;
  checkpoint::OptimizerEntry entry_;
};

SaveReport save_fake(const ProcessGroup& group, FakePart& part, const std::string& root,
                     std::int64_t step) {
  const checkpoint::SavedPart* parts[] = {&part};
  return checkpoint::save(group.communicator()->control(), {.root = root, .step = step}, parts);
}

// The deadline counts from the last progress, not from the beginning.
TEST(Save, OfARankThatTakesFarLongerThanTheDeadlineIsNoError) {
  const Folder folder;
  const WithTimeout timeout(400ms);
  with_ranks(3, [&](const ProcessGroup& group) {
    FakePart part(group.rank(), 3, 12);
    if (group.rank() == 1) part.before_read = [] { std::this_thread::sleep_for(100ms); };
    EXPECT_EQ(save_fake(group, part, folder.path(), 7).folder, folder / "step-00000007");
  });
}

TEST(Save, ThatOneRankAloneCallsNamesTheOthers) {
  const Folder folder;
  const WithTimeout timeout(300ms);
  const auto communicators = make_threads(3);
  std::promise<void> done;
  const std::shared_future<void> ended = done.get_future().share();
  run_ranks(3, [&](int rank) {
    const ProcessGroup group(communicators[static_cast<std::size_t>(rank)]);
    if (rank != 1) return ended.wait();
    FakePart part(rank, 3, 1);
    EXPECT_THAT(thrown<Timeout>([&] { save_fake(group, part, folder.path(), 1); }),
                HasSubstr("ranks 0, 2"));
    done.set_value();
  });
}

TEST(Save, OfWhichOneRankFailsIsTheSameErrorOnAllAndLeavesNothing) {
  const Folder folder;
  for (int bad = 0; bad < 3; ++bad) {
    const auto texts = thrown_on_all<IoError>(3, [&](const ProcessGroup& group) {
      FakePart good(group.rank(), 3, 2);
      save_fake(group, good, folder.path(), 1 + 2 * bad);
      FakePart part(group.rank(), 3, 2);
      if (group.rank() == bad) part.before_read = [] { throw IoError("the state cannot be read"); };
      save_fake(group, part, folder.path(), 2 + 2 * bad);
    });
    EXPECT_THAT(texts, Each(fmt::format("rank {}: the state cannot be read", bad)));
    EXPECT_EQ(checkpoint::find_latest(folder.path()),
              folder / fmt::format("step-{:08}", 1 + 2 * bad));
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      EXPECT_THAT(entry.path().filename().string(), testing::Not(HasSubstr("tmp")));
  }
}

// Training that goes back saves lower steps than are there: they are not what is pruned.
TEST(Save, AfterGoingBackIsNotPrunedAtOnce) {
  const Folder folder;
  with_ranks(2, [&](const ProcessGroup& group) {
    for (const std::int64_t step : {7, 8, 9, 3, 8}) {
      FakePart part(group.rank(), 2, 1);
      EXPECT_TRUE(std::filesystem::exists(save_fake(group, part, folder.path(), step).folder));
      group.barrier();
    }
  });
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    left.insert(entry.path().filename());
  EXPECT_EQ(left, (std::set<std::string>{"LATEST", "step-00000008", "step-00000009"}));
}

// A checkpoint that is found to be of no use when it is needed is worse than none.
TEST(Save, ThatNobodyCouldLoadIsRefusedBeforeAnythingIsWritten) {
  const Folder folder;
  checkpoint::SaveRequest request{.root = folder.path(), .step = 1};
  for (int i = 0; i < 30000; ++i) request.extra[std::to_string(i)] = "";
  with_ranks(3, [&](const ProcessGroup& group) {
    FakePart part(group.rank(), 3, 1);
    part.before_read = [] { ADD_FAILURE() << "something was written"; };
    const checkpoint::SavedPart* parts[] = {&part};
    EXPECT_THAT(thrown<InvalidArgument>(
                    [&] { checkpoint::save(group.communicator()->control(), request, parts); }),
                HasSubstr("could not be loaded"));
  });
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Save, OfDifferentStepsIsRefused) {
  const Folder folder;
  const auto texts = thrown_on_all<InvalidArgument>(2, [&](const ProcessGroup& group) {
    FakePart part(group.rank(), 2, 1);
    save_fake(group, part, folder.path(), 5 + group.rank());
  });
  EXPECT_THAT(texts, Each(HasSubstr("rank 1: saves step 6, rank 0 step 5")));
}

TEST(Find, TakesAnOlderStepOnlyWhenAsked) {
  const Folder folder;
  with_ranks(2, [&](const ProcessGroup& group) {
    for (const std::int64_t step : {3, 4}) {
      FakePart part(group.rank(), 2, 1);
      save_fake(group, part, folder.path(), step);
    }
  });
  const auto newest = folder / "step-00000004" / "rank-00001-of-00002.h5";
  std::filesystem::resize_file(newest, std::filesystem::file_size(newest) - 1);
  EXPECT_THAT(thrown<CorruptCheckpoint>([&] { checkpoint::find(folder.path(), {}); }),
              HasSubstr(newest.string()));
  EXPECT_EQ(checkpoint::find(folder.path(), {.allow_older = true}).folder,
            folder / "step-00000003");
  EXPECT_EQ(checkpoint::find(folder.path(), {.step = 3}).folder, folder / "step-00000003");
  EXPECT_EQ(checkpoint::find(folder / "step-00000003", {}).folder, folder / "step-00000003");
  EXPECT_THAT(thrown<InvalidArgument>([&] { checkpoint::find(folder.path(), {.step = 5}); }),
              HasSubstr("there is no step 5; the newest is 4"));
}

}  // namespace
}  // namespace ration::test

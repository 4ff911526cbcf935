// What the process really holds.

#include <fstream>
#include <string>

#include "support/folder.hpp"
#include "support/throws.hpp"

namespace ration::test {
namespace {

#ifdef RATION_SANITIZED
constexpr bool kSanitized = true;  // their shadow memory grows on its own
#else
constexpr bool kSanitized = false;
#endif

double resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmRSS:") continue;
    double kib = 0;
    status >> kib;
    return kib * 1024;
  }
  return 0;
}

class Resident : public testing::TestWithParam<int> {};  // stage

TEST_P(Resident, MemoryIsFlatFromTheSecondStepOn) {
  if (kSanitized) GTEST_SKIP() << "SKIPPED: a sanitizer's memory is not the program's";
  double second = 0;
  double last = 0;
  with_ranks(4, [&](const ProcessGroup& group) {
    TinyTrainer trainer(
        group, {.config = {.stage = GetParam(), .micro_steps = 2}, .clip = 1.0, .micro_steps = 2});
    for (int step = 1; step <= 200; ++step) {
      trainer.step();
      group.barrier();
      if (group.rank() == 0 && step == 2) second = resident_bytes();
      if (group.rank() == 0 && step == 200) last = resident_bytes();
      group.barrier();
    }
  });
  EXPECT_LE(last, second + 512 * 1024) << "stage " << GetParam();
}

TEST_P(Resident, MemoryIsWhatWasPlanned) {
  if (kSanitized) GTEST_SKIP() << "SKIPPED: a sanitizer's memory is not the program's";
  const double before = resident_bytes();
  double planned = 0;
  double grown = 0;
  with_ranks(4, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group, {.config = {.stage = GetParam(), .precision = Precision::bf16()},
                                .model = {{"a", {{"a.w", {600, 600}}}},
                                          {"b", {{"b.w", {600, 600}}}},
                                          {"c", {{"c.w", {600, 600}}}}}});
    trainer.step();
    trainer.step();
    group.barrier();
    if (group.rank() == 0) {
      for (const std::uint64_t bytes : trainer.optimizer().memory().planned)
        planned += 4.0 * static_cast<double>(bytes);
      grown = resident_bytes() - before;
    }
    group.barrier();
  });
  EXPECT_LE(grown, 1.03 * planned + 64 * 1024 * 1024) << "stage " << GetParam();
}

TEST_P(Resident, RelayoutsLeaveNothingBehind) {
  if (kSanitized) GTEST_SKIP() << "SKIPPED: a sanitizer's memory is not the program's";
  double early = 0;
  double last = 0;
  with_ranks(2, [&](const ProcessGroup& group) {
    TinyTrainer trainer(group,
                        {.config = {.stage = GetParam()}, .model = {{"a", {{"w", {300, 300}}}}}});
    for (int i = 1; i <= 40; ++i) {
      trainer.optimizer().relayout();
      group.barrier();
      if (group.rank() == 0 && i == 10) early = resident_bytes();
      if (group.rank() == 0 && i == 40) last = resident_bytes();
      group.barrier();
    }
  });
  EXPECT_LE(last, early + 4 * 1024 * 1024) << "a layout is 1.4 MiB and more a rank";
}

// Fifty in a row, with the training waiting and, faster than the disk, beside it.
TEST_P(Resident, SavesLeaveNothingBehind) {
  if (kSanitized) GTEST_SKIP() << "SKIPPED: a sanitizer's memory is not the program's";
  for (const bool asynchronous : {false, true}) {
    const Folder folder;
    double early = 0;
    double last = 0;
    with_ranks(2, [&](const ProcessGroup& group) {
      TinyTrainer trainer(group, {.config = {.stage = GetParam(), .asynchronous_save = true}});
      for (int i = 1; i <= 60; ++i) {
        trainer.step();
        trainer.optimizer().save(folder.path(), {.asynchronous = asynchronous});
        if (i != 10 && i != 60) continue;
        trainer.optimizer().wait_saved();
        group.barrier();
        if (group.rank() == 0) (i == 10 ? early : last) = resident_bytes();
        group.barrier();
      }
    });
    EXPECT_LE(last, early + 1024 * 1024) << "stage " << GetParam() << " " << asynchronous;
    RecordProperty(asynchronous ? "beside" : "waiting", std::to_string(last - early));
  }
}

TEST_P(Resident, OptimizersThatAreGoneHoldNothing) {
  if (kSanitized) GTEST_SKIP() << "SKIPPED: a sanitizer's memory is not the program's";
  double early = 0;
  double last = 0;
  with_ranks(2, [&](const ProcessGroup& group) {
    for (int i = 1; i <= 40; ++i) {
      TinyTrainer trainer(group,
                          {.config = {.stage = GetParam()}, .model = {{"a", {{"w", {300, 300}}}}}});
      trainer.step();
      group.barrier();
      if (group.rank() == 0 && i == 10) early = resident_bytes();
      if (group.rank() == 0 && i == 40) last = resident_bytes();
      group.barrier();
    }
  });
  EXPECT_LE(last, early + 4 * 1024 * 1024);
}

INSTANTIATE_TEST_SUITE_P(Stages, Resident, testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace ration::test

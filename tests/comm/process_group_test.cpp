// The public handle.

#include <gtest/gtest.h>

#include <ration/error.hpp>
#include <ration/process_group.hpp>

#include "backends.hpp"
#include "support/ranks.hpp"

namespace ration {
namespace {

class Groups : public OnEveryBackend {};
class GroupsOfThree : public OnEveryBackend {};

TEST_P(Groups, SumsAndBroadcastsInTheCallersMemory) {
  const Ranks communicators = make();
  run_ranks(ranks(), [&](int rank) {
    const ProcessGroup group(communicators[z(rank)]);
    EXPECT_EQ(group.rank(), rank);
    EXPECT_EQ(group.size(), ranks());
    for (const std::size_t count : {1U, 10U, 64U, 65U, 3000U}) {
      std::vector<double> values(count, rank + 1.0);
      group.all_reduce(values);
      const double sum = ranks() * (ranks() + 1) / 2.0;
      EXPECT_EQ(values, std::vector<double>(count, sum));

      const int root = ranks() - 1;
      std::vector<std::byte> bytes(count, static_cast<std::byte>(rank));
      group.broadcast(bytes, root);
      EXPECT_EQ(bytes, std::vector<std::byte>(count, static_cast<std::byte>(root)));
      std::fill(values.begin(), values.end(), -1.0);  // free again: nobody reads it any more
      std::fill(bytes.begin(), bytes.end(), std::byte{0});
    }
    group.barrier();
  });
}

TEST_P(Groups, SplitOrdersByKeyThenRank) {
  const Ranks communicators = make();
  run_ranks(ranks(), [&](int rank) {
    const ProcessGroup group(communicators[z(rank)]);
    const ProcessGroup part = group.split(rank % 2, -rank);  // the last becomes the first
    std::vector<int> members;
    for (int r = ranks() - 1; r >= 0; --r) {
      if (r % 2 == rank % 2) members.push_back(r);
    }
    ASSERT_EQ(part.size(), static_cast<int>(members.size()));
    EXPECT_EQ(members[z(part.rank())], rank);
    std::vector<double> values{static_cast<double>(rank)};
    part.all_reduce(values);
    double sum = 0;
    for (const int member : members) sum += member;
    EXPECT_EQ(values[0], sum);

    const ProcessGroup same = group.split(7);
    EXPECT_EQ(same.rank(), rank);
    const ProcessGroup nested = part.split(0);
    EXPECT_EQ(nested.rank(), part.rank());
    nested.barrier();
  });
}

TEST_P(GroupsOfThree, AbortOfAPartEndsTheWhole) {
  const Ranks communicators = make();
  run_ranks(ranks(), [&](int rank) {
    const ProcessGroup group(communicators[z(rank)]);
    const ProcessGroup part = group.split(rank == 0 ? 0 : 1);
    try {
      group.barrier();  // all have their part
      if (rank == 1) part.abort("rank 1: the disk is full");
      for (;;) group.barrier();
    } catch (const RemoteError& e) {
      EXPECT_STREQ(e.what(), "rank 1: the disk is full");
    }
    EXPECT_THROW(part.barrier(), RemoteError);
    EXPECT_EQ(group.communicator()->control().aborted(), "rank 1: the disk is full");
  });
}

TEST(ProcessGroupHandle, UsedBeforeItHasRanksThrows) {
  EXPECT_THROW(ProcessGroup().barrier(), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Threads, Groups, testing::ValuesIn(cases(backends())), case_name);
INSTANTIATE_TEST_SUITE_P(Threads, GroupsOfThree, testing::ValuesIn(cases(backends(), 3)),
                         case_name);

}  // namespace
}  // namespace ration

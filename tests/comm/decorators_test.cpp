// Communicators around a communicator.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "comm/decorators/decorators.hpp"
#include "comm/threads/threads.hpp"
#include "elements.hpp"
#include "support/deadline.hpp"
#include "support/ranks.hpp"

namespace ration {
namespace {

using namespace std::chrono_literals;
using Mode = ThreadsOptions::Mode;

class InBothModes : public testing::TestWithParam<Mode> {};

TEST_P(InBothModes, ADroppedOperationIsATimeoutOnTheOthers) {
  const WithTimeout timeout(300ms);
  const auto communicators = make_threads(3, {.mode = GetParam()});
  run_ranks(3, [&](int rank) {
    const auto c = make_faulty(communicators[z(rank)], [&](Sequence n, const Operation&) {
      return Fault{.drop = rank == 2 && n == 5};
    });
    const auto stream = c->make_stream("test");
    Buffer values(DType::f64, 1000);
    for (int i = 0; i < 6; ++i) {
      const Sequence sequence = c->submit(*stream, {.kind = OperationKind::all_reduce,
                                                    .count = 1000,
                                                    .type = DType::f64,
                                                    .send = values.data(),
                                                    .recv = values.data(),
                                                    .tag = "x"});
      c->release(*stream, sequence);
    }
    if (rank == 2) {
      stream->synchronize();
      return;
    }
    try {
      stream->synchronize();
      ADD_FAILURE() << "rank " << rank << " did not throw";
    } catch (const Timeout& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr("all_reduce #5 \"x\" (f64 x 1000): timed out after "
                                               "0.3 s waiting for rank 2"));
    }
  });
}

TEST_P(InBothModes, ADelayedOperationIsTheSame) {
  const auto communicators = make_threads(3, {.mode = GetParam()});
  run_ranks(3, [&](int rank) {
    const auto c = make_faulty(communicators[z(rank)], [&](Sequence n, const Operation&) {
      return Fault{.delay = std::chrono::milliseconds((static_cast<int>(n) + rank) % 3 * 5)};
    });
    const auto part = c->split(0, 0);
    const auto stream = c->make_stream("test");
    for (int i = 0; i < 10; ++i) {
      std::int64_t value = rank + i;
      (i % 2 ? *c : *part)
          .submit(*stream, {.kind = OperationKind::all_reduce,
                            .count = 1,
                            .type = DType::i64,
                            .send = &value,
                            .recv = &value});
      stream->synchronize();
      EXPECT_EQ(value, 3 * i + 3);
    }
  });
}

TEST_P(InBothModes, AFailureIsThrownWhereItIsSubmitted) {
  const auto c = make_faulty(make_threads(1, {.mode = GetParam()})[0],
                             [](Sequence n, const Operation&) { return Fault{.fail = n == 1}; });
  const auto stream = c->make_stream("test");
  c->submit(*stream, {.kind = OperationKind::barrier});
  EXPECT_THROW(c->submit(*stream, {.kind = OperationKind::barrier}), CommunicationError);
}

INSTANTIATE_TEST_SUITE_P(Threads, InBothModes, testing::Values(Mode::direct, Mode::streams),
                         [](const auto& info) {
                           return info.param == Mode::direct ? "direct" : "streams";
                         });

// What the backend alone cannot see: ranks that differ in what came before, in a broadcast that no
// one but the root is compared with.
TEST(Checked, TellsEqualOperationsApartByTheirHistory) {
  const auto communicators = make_threads(3);
  run_ranks(3, [&](int rank) {
    const auto c = make_checked(communicators[z(rank)])->split(0, 0);  // parts are checked too
    const auto stream = c->make_stream("test");
    std::int64_t value = 0;
    const char* tags[] = {"a", "b"};
    for (int i = 0; i < 2; ++i) {
      c->submit(*stream, {.kind = OperationKind::all_reduce,
                          .count = 1,
                          .type = DType::i64,
                          .send = &value,
                          .recv = &value,
                          .tag = tags[rank == 2 ? 1 - i : i]});
    }
    EXPECT_THROW(stream->synchronize(), CommunicationError);
  });
}

}  // namespace
}  // namespace ration

// Ranks that are late, gone or astray: an error on the others, never a hang.

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "backends.hpp"
#include "elements.hpp"
#include "support/deadline.hpp"
#include "support/ranks.hpp"

namespace ration {
namespace {

using testing::HasSubstr;

class Errors : public OnEveryBackend {};
class ErrorsOfThree : public OnEveryBackend {};
class ErrorsWhenChecked : public OnEveryBackend {};

struct Arrays {
  explicit Arrays(int ranks) : send(DType::f32, 4096 * z(ranks)), recv(DType::f32, 4096) {}
  Buffer send;
  Buffer recv;

  Operation reduce(const char* tag = "h.3") {
    return {.kind = OperationKind::reduce_scatter,
            .count = 4096,
            .send = send.data(),
            .recv = recv.data(),
            .tag = tag};
  }
};

TEST_P(Errors, ATimeoutNamesTheRanksThatAreMissing) {
  const Ranks communicators = make();
  const WithTimeout timeout(std::chrono::milliseconds(300));
  run_ranks(ranks(), [&](int rank) {
    if (rank == 0) return;
    Communicator& c = *communicators[z(rank)];
    Arrays arrays(ranks());
    const auto stream = c.make_stream("test");
    c.submit(*stream, arrays.reduce());
    try {
      stream->synchronize();
      ADD_FAILURE() << "rank " << rank << " did not throw";
    } catch (const Timeout& e) {
      EXPECT_THAT(e.what(), HasSubstr("reduce_scatter #0 \"h.3\" (f32 x 4096): timed out after 0.3 "
                                      "s waiting for rank 0"));
    }
  });
  EXPECT_THROW(communicators[0]->control().fold("x", {}, {}, *std::make_unique<Bytes>(), "late"),
               CommunicationError);
}

TEST_P(ErrorsOfThree, ARankThatTimedOutNamesAllThatAreMissing) {
  const Ranks communicators = make();
  const WithTimeout timeout(std::chrono::milliseconds(300));
  Communicator& c = *communicators[1];
  const auto stream = c.make_stream("test");
  c.submit(*stream, {.kind = OperationKind::barrier, .tag = "the end"});
  std::string missing = "0";
  for (int rank = 2; rank < ranks(); ++rank) missing += ", " + std::to_string(rank);
  try {
    stream->synchronize();
    FAIL() << "did not throw";
  } catch (const Timeout& e) {
    EXPECT_EQ(std::string(e.what()),
              "rank 1: barrier #0 \"the end\": timed out after 0.3 s waiting for ranks " + missing);
  }
}

// The deadline is ten minutes here: what names the rank is that it has ended.
TEST_P(Errors, ARankThatHasEndedIsNamedAtOnce) {
  const Ranks communicators = make();
  const auto start = Clock::now();
  run_ranks(ranks(), [&](int rank) {
    Communicator& c = *communicators[z(rank)];
    if (rank == 0) {
      c.depart();
      return;
    }
    Arrays arrays(ranks());
    const auto stream = c.make_stream("test");
    try {
      if (rank % 2 == 1) {
        c.submit(*stream, arrays.reduce());
        stream->synchronize();
      } else {
        Bytes result;
        c.control().fold(
            "step", {}, [](std::span<const Bytes>, Bytes&) {}, result, "header");
      }
      ADD_FAILURE() << "rank " << rank << " did not throw";
    } catch (const CommunicationError& e) {
      EXPECT_THAT(e.what(), HasSubstr("rank 0 has ended without it"));
    }
  });
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(60));
}

TEST_P(Errors, AnAbortWakesWhoeverWaits) {
  const Ranks communicators = make();
  const auto start = Clock::now();
  run_ranks(ranks(), [&](int rank) {
    Communicator& c = *communicators[z(rank)];
    if (rank == 0) {
      c.abort("rank 0: out of cheese");
      return;
    }
    Arrays arrays(ranks());
    const auto stream = c.make_stream("test");
    c.submit(*stream, arrays.reduce());
    try {
      stream->synchronize();
      ADD_FAILURE() << "rank " << rank << " did not throw";
    } catch (const RemoteError& e) {
      EXPECT_STREQ(e.what(), "rank 0: out of cheese");
    }
  });
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));  // not the deadline's 600
}

TEST_P(Errors, DifferentOperationsAreAnErrorOnAllRanks) {
  const Ranks communicators = make();
  run_ranks(ranks(), [&](int rank) {
    Communicator& c = *communicators[z(rank)];
    Arrays arrays(ranks());
    Buffer whole(DType::f32, 4096 * z(ranks()));
    const auto stream = c.make_stream("test");
    if (rank == 0) {
      c.submit(*stream, {.kind = OperationKind::all_gather,
                         .count = 4096,
                         .send = arrays.recv.data(),
                         .recv = whole.data(),
                         .tag = "h.2"});
    } else {
      c.submit(*stream, arrays.reduce());
    }
    try {
      stream->synchronize();
      ADD_FAILURE() << "rank " << rank << " did not throw";
    } catch (const CommunicationError& e) {
      EXPECT_THAT(e.what(), HasSubstr("reduce_scatter #0 \"h.3\" (f32 x 4096)"));
      EXPECT_THAT(e.what(), HasSubstr("rank 0 "));
      EXPECT_THAT(e.what(), HasSubstr("all_gather #0 \"h.2\" (f32 x 4096)"));
    }
  });
}

TEST_P(Errors, DifferentCountsTypesAndRootsAreErrors) {
  for (int what = 0; what < 4; ++what) {
    const Ranks communicators = make();
    run_ranks(ranks(), [&](int rank) {
      Communicator& c = *communicators[z(rank)];
      Arrays arrays(ranks());
      const auto stream = c.make_stream("test");
      Operation operation = arrays.reduce();
      if (rank == 1 && what == 0) operation.count = 64;
      if (rank == 1 && what == 1) operation.type = DType::bf16;
      if (rank == 1 && what == 2) operation.send_type = DType::bf16;
      if (what == 3) {
        operation.kind = OperationKind::broadcast;
        operation.peer = rank == 1 ? 1 : 0;
      }
      c.submit(*stream, operation);
      EXPECT_THROW(stream->synchronize(), CommunicationError) << what;
    });
  }
}

TEST_P(ErrorsWhenChecked, ASwappedOrderOfEqualUnitsIsFoundWhenChecked) {
  const Ranks communicators = make();
  run_ranks(ranks(), [&](int rank) {
    Communicator& c = *communicators[z(rank)];
    Arrays arrays(ranks());
    const auto stream = c.make_stream("test");
    c.submit(*stream, arrays.reduce("same"));
    c.submit(*stream, arrays.reduce(rank == 1 ? "b" : "a"));
    c.submit(*stream, arrays.reduce(rank == 1 ? "a" : "b"));
    try {
      stream->synchronize();
      ADD_FAILURE() << "rank " << rank << " did not throw";
    } catch (const CommunicationError& e) {
      EXPECT_THAT(e.what(), HasSubstr("rank 1 "));
      EXPECT_THAT(e.what(), HasSubstr("reduce_scatter #1 \"a\" (f32 x 4096)"));
      EXPECT_THAT(e.what(), HasSubstr("reduce_scatter #1 \"b\" (f32 x 4096)"));
    }
  });
}

// What the alarm promises: when a rank has seen the error, its memory may go.
TEST_P(Errors, MemoryMayBeFreedOnceTheErrorIsSeen) {
  for (int round = 0; round < 10; ++round) {
    const Ranks communicators = make();
    run_ranks(ranks(), [&](int rank) {
      Communicator& c = *communicators[z(rank)];
      try {
        for (int step = 0;; ++step) {
          const auto memory = c.allocate(z(ranks()) * 16384 * 4);
          const auto recv = c.allocate(16384 * 4);
          const auto stream = c.make_stream("test");
          if (rank == 0 && step == round % 5) c.abort("rank 0: the end");
          const Sequence sequence = c.submit(*stream, {.kind = OperationKind::reduce_scatter,
                                                       .count = 16384,
                                                       .send = memory->data(),
                                                       .recv = recv->data()});
          c.release(*stream, sequence);
          stream->synchronize();
        }
      } catch (const RemoteError& e) {
        EXPECT_STREQ(e.what(), "rank 0: the end");
      }
    });
  }
}

TEST_P(Errors, WhatAnOperationCannotMeanIsRefused) {
  const Ranks communicators = make();
  run_ranks(ranks(), [&](int rank) {
    Communicator& c = *communicators[z(rank)];
    const auto stream = c.make_stream("test");
    Arrays arrays(ranks());
    const auto refused = [&](const auto& change) {
      Operation operation = arrays.reduce();
      change(operation);
      EXPECT_THROW(c.submit(*stream, operation), InvalidArgument);
    };
    refused([](Operation& o) { o.send = nullptr; });
    refused([](Operation& o) { o.recv = nullptr; });
    refused([](Operation& o) { o.type = DType::f64; });
    refused([](Operation& o) { o.send_type = DType::u8; });
    refused([](Operation& o) { o.recv_type = DType::bf16; });
    refused([](Operation& o) {
      o.type = o.recv_type = DType::bf16;
      o.add = true;
    });
    refused([](Operation& o) {
      o.kind = OperationKind::all_reduce;
      o.type = DType::u8;
    });
    refused([](Operation& o) { o.kind = OperationKind::broadcast; });
    refused([&](Operation& o) {
      o.kind = OperationKind::send;
      o.peer = rank;
    });
    refused([&](Operation& o) {
      o.kind = OperationKind::recv;
      o.peer = ranks();
    });
    c.submit(*stream, {.kind = OperationKind::barrier});  // nothing of it has happened
    stream->synchronize();
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, Errors, testing::ValuesIn(cases(backends(), 2)), case_name);
INSTANTIATE_TEST_SUITE_P(Threads, ErrorsOfThree, testing::ValuesIn(cases(backends(), 3)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Threads, ErrorsWhenChecked,
                         testing::ValuesIn(cases(checked_backends(), 2)), case_name);

// Rank 0 misses ranks 1 and 2, but rank 1 only because it waits for rank 2.
TEST(Threads, WhoMissesOneRankKnowsBetterThanWhoMissesSeveral) {
  for (const auto mode : {ThreadsOptions::Mode::direct, ThreadsOptions::Mode::streams}) {
    const Ranks communicators = make_threads(3, {.mode = mode});
    Ranks parts(3);
    run_ranks(
        3, [&](int rank) { parts[z(rank)] = communicators[z(rank)]->split(rank == 0 ? 0 : 1, 0); });
    const WithTimeout timeout(std::chrono::milliseconds(2000));
    run_ranks(2, [&](int rank) {
      Communicator& c = rank == 0 ? *communicators[0] : *parts[1];
      const auto stream = c.make_stream("test");
      c.submit(*stream, {.kind = OperationKind::barrier, .tag = rank == 0 ? "late" : "first"});
      try {
        stream->synchronize();
        ADD_FAILURE() << "rank " << rank << " did not throw";
      } catch (const Timeout& e) {
        EXPECT_STREQ(e.what(),
                     "rank 1: barrier #0 \"first\": timed out after 2.0 s waiting for rank 2");
      }
    });
  }
}

TEST(Threads, NumbersOfRanksThatCannotBe) {
  EXPECT_THROW(make_threads(0), InvalidArgument);
  EXPECT_THROW(make_threads(257), InvalidArgument);
}

TEST(Threads, TheEnvironmentChoosesTheMode) {
  setenv("RATION_THREADS", "streams", 1);
  const float shard = 0;
  EXPECT_FALSE(make_threads(1)[0]->share(&shard, 4)->one_sided());
  setenv("RATION_THREADS", "fast", 1);
  EXPECT_THROW(make_threads(1), InvalidArgument);
  unsetenv("RATION_THREADS");
  EXPECT_TRUE(make_threads(1)[0]->share(&shard, 4)->one_sided());
}

}  // namespace
}  // namespace ration

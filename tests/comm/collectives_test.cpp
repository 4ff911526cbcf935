// Every operation, on every backend and number of ranks, against a plain oracle: the same bits.

#include <random>

#include <gtest/gtest.h>

#include "backends.hpp"
#include "elements.hpp"
#include "support/ranks.hpp"

namespace ration {
namespace {

constexpr std::size_t kCounts[] = {0, 1, 7, 64, 1000, 4099};
constexpr DType kParameterTypes[] = {DType::f32, DType::bf16, DType::f16};
constexpr DType kAllTypes[] = {DType::f32, DType::bf16, DType::f16,
                               DType::f64, DType::i64,  DType::u8};

class Collectives : public OnEveryBackend {
 protected:
  /// Runs `body(communicator, stream)` on each rank, to its end.
  template <class Body>
  void on_all(const Body& body) {
    const Ranks communicators = make();
    run_ranks(ranks(), [&](int rank) {
      Communicator& communicator = *communicators[z(rank)];
      const auto stream = communicator.make_stream("test");
      body(communicator, *stream);
      stream->synchronize();
    });
  }

  static std::vector<Buffer> inputs(int ranks, DType type, std::size_t count) {
    std::vector<Buffer> result;
    for (int rank = 0; rank < ranks; ++rank) result.push_back(numbers(type, count, rank));
    return result;
  }
};

Buffer slice(const Buffer& whole, std::size_t begin, std::size_t count) {
  Buffer part(whole.type, count);
  if (count > 0) std::memcpy(part.data(), whole.at(begin), part.bytes.size());
  return part;
}

TEST_P(Collectives, ReduceScatterIsTheOrderedSum) {
  on_all([&](Communicator& c, Stream& stream) {
    for (const DType type : kParameterTypes) {
      for (const std::size_t count : kCounts) {
        const auto all = inputs(ranks(), type, count * z(ranks()));
        const Buffer expected = slice(ordered_sum(all, type), z(c.rank()) * count, count);
        for (const bool in_place : {false, true}) {
          Buffer send = all[z(c.rank())];
          Buffer separate(type, count);
          void* recv = in_place ? send.at(z(c.rank()) * count) : separate.data();
          const Sequence sequence = c.submit(stream, {.kind = OperationKind::reduce_scatter,
                                                      .count = count,
                                                      .type = type,
                                                      .send = send.data(),
                                                      .send_type = type,
                                                      .recv = recv,
                                                      .recv_type = type});
          stream.synchronize();
          const Buffer got = in_place ? slice(send, z(c.rank()) * count, count) : separate;
          EXPECT_TRUE(got == expected) << name_of(type) << " x " << count << " " << in_place;
          c.release(stream, sequence);
          stream.synchronize();
        }
      }
    }
  });
}

TEST_P(Collectives, ReduceScatterRoundsToTheWireAndWidens) {
  on_all([&](Communicator& c, Stream& stream) {
    for (const DType source : {DType::f32, DType::bf16}) {
      for (const DType wire : {DType::f32, DType::bf16}) {
        const std::size_t count = 1000;
        const auto all = inputs(ranks(), source, count * z(ranks()));
        const Buffer sum = slice(ordered_sum(all, wire), z(c.rank()) * count, count);
        for (const bool add : {false, true}) {
          Buffer recv = numbers(DType::f32, count, 77);
          const Buffer before = recv;
          const Sequence sequence = c.submit(stream, {.kind = OperationKind::reduce_scatter,
                                                      .count = count,
                                                      .type = wire,
                                                      .send = all[z(c.rank())].data(),
                                                      .send_type = source,
                                                      .recv = recv.data(),
                                                      .recv_type = DType::f32,
                                                      .add = add});
          c.release(stream, sequence);
          stream.synchronize();
          for (std::size_t i = 0; i < count; ++i) {
            const float expected = add ? before.as_float(i) + sum.as_float(i) : sum.as_float(i);
            ASSERT_EQ(recv.as_float(i), expected) << i;
          }
        }
      }
    }
  });
}

TEST_P(Collectives, AllGatherBringsEveryShard) {
  on_all([&](Communicator& c, Stream& stream) {
    for (const DType type : kAllTypes) {
      for (const std::size_t count : kCounts) {
        const auto all = inputs(ranks(), type, count);
        for (const bool in_place : {false, true}) {
          Buffer recv(type, count * z(ranks()));
          const Buffer& own = all[z(c.rank())];
          if (in_place && count > 0) {
            std::memcpy(recv.at(z(c.rank()) * count), own.data(), own.bytes.size());
          }
          const void* send = in_place ? recv.at(z(c.rank()) * count) : own.data();
          const Sequence sequence = c.submit(stream, {.kind = OperationKind::all_gather,
                                                      .count = count,
                                                      .type = type,
                                                      .send = send,
                                                      .recv = recv.data()});
          stream.synchronize();
          for (int rank = 0; rank < ranks(); ++rank) {
            EXPECT_TRUE(slice(recv, z(rank) * count, count) == all[z(rank)])
                << name_of(type) << " x " << count << " " << in_place;
          }
          c.release(stream, sequence);
          stream.synchronize();
        }
      }
    }
  });
}

TEST_P(Collectives, AllReduceIsTheOrderedSumOnEveryRank) {
  on_all([&](Communicator& c, Stream& stream) {
    for (const DType type : kAllTypes) {
      if (type == DType::u8) continue;
      for (const std::size_t count : kCounts) {
        const auto all = inputs(ranks(), type, count);
        const Buffer expected = ordered_sum(all, type);
        for (const bool in_place : {false, true}) {
          Buffer send = all[z(c.rank())];
          Buffer separate(type, count);
          Buffer& recv = in_place ? send : separate;
          const Sequence sequence = c.submit(stream, {.kind = OperationKind::all_reduce,
                                                      .count = count,
                                                      .type = type,
                                                      .send = send.data(),
                                                      .send_type = type,
                                                      .recv = recv.data()});
          stream.synchronize();
          EXPECT_TRUE(recv == expected) << name_of(type) << " x " << count << " " << in_place;
          c.release(stream, sequence);
          stream.synchronize();
        }
      }
    }
  });
}

TEST_P(Collectives, AllReduceRoundsToTheWire) {
  on_all([&](Communicator& c, Stream& stream) {
    for (const std::size_t count : kCounts) {
      const auto all = inputs(ranks(), DType::f32, count);
      Buffer recv(DType::bf16, count);
      const Sequence sequence = c.submit(stream, {.kind = OperationKind::all_reduce,
                                                  .count = count,
                                                  .type = DType::bf16,
                                                  .send = all[z(c.rank())].data(),
                                                  .send_type = DType::f32,
                                                  .recv = recv.data()});
      c.release(stream, sequence);
      stream.synchronize();
      EXPECT_TRUE(recv == ordered_sum(all, DType::bf16)) << count;
    }
  });
}

TEST_P(Collectives, BroadcastCopiesTheRoots) {
  on_all([&](Communicator& c, Stream& stream) {
    for (int root = 0; root < ranks(); ++root) {
      for (const DType type : kAllTypes) {
        for (const std::size_t count : kCounts) {
          const Buffer expected = numbers(type, count, root, 5);
          Buffer send = numbers(type, count, c.rank(), 5);
          Buffer separate(type, count);
          const bool in_place = count % 2 == 1;
          Buffer& recv = in_place ? send : separate;
          const Sequence sequence = c.submit(stream, {.kind = OperationKind::broadcast,
                                                      .count = count,
                                                      .type = type,
                                                      .send = send.data(),
                                                      .recv = recv.data(),
                                                      .peer = root});
          c.release(stream, sequence);
          stream.synchronize();
          EXPECT_TRUE(recv == expected) << name_of(type) << " x " << count;
        }
      }
    }
  });
}

TEST_P(Collectives, SendsArriveInOrderBetweenEachPair) {
  on_all([&](Communicator& c, Stream& stream) {
    constexpr int kMessages = 20;  // more than fit in the ring of a pair
    const int to = (c.rank() + 1) % ranks();
    const int from = (c.rank() + ranks() - 1) % ranks();
    if (ranks() == 1) return;
    std::vector<Buffer> sent;
    std::vector<Buffer> got;
    for (int i = 0; i < kMessages; ++i) {
      sent.push_back(numbers(DType::f32, z(i) * 50, c.rank(), static_cast<unsigned>(i)));
      got.emplace_back(DType::f32, z(i) * 50);
    }
    const auto receiving = c.make_stream("receiving");
    for (int i = 0; i < kMessages; ++i) {
      const Sequence sequence = c.submit(stream, {.kind = OperationKind::send,
                                                  .count = sent[z(i)].count,
                                                  .send = sent[z(i)].data(),
                                                  .peer = to});
      c.submit(*receiving, {.kind = OperationKind::recv,
                            .count = got[z(i)].count,
                            .recv = got[z(i)].data(),
                            .peer = from});
      c.release(stream, sequence);
    }
    stream.synchronize();
    receiving->synchronize();
    for (int i = 0; i < kMessages; ++i) {
      EXPECT_TRUE(got[z(i)] == numbers(DType::f32, z(i) * 50, from, static_cast<unsigned>(i)));
    }
  });
}

TEST_P(Collectives, BarrierWaitsForAll) {
  std::atomic<int> arrived{0};
  on_all([&](Communicator& c, Stream& stream) {
    for (int round = 1; round <= 100; ++round) {
      arrived.fetch_add(1);
      c.submit(stream, {.kind = OperationKind::barrier});
      stream.synchronize();
      EXPECT_GE(arrived.load(), round * ranks());
    }
  });
}

// More operations in flight than slots, on two streams that finish each in its own time, while
// every rank is at times late.
TEST_P(Collectives, ManyOperationsInARowWithDelays) {
  const Ranks communicators = make();
  run_ranks(ranks(), [&](int rank) {
    Communicator& a = *communicators[z(rank)];
    const auto b = a.split(0, 0);
    const auto reduces = a.make_stream("reduces");
    const auto gathers = a.make_stream("gathers");
    constexpr std::size_t kOperations = 200;
    constexpr std::size_t kCount = 96;
    std::mt19937 random(static_cast<unsigned>(rank));
    std::vector<Buffer> reduced;
    std::vector<Buffer> gathered;
    std::vector<Buffer> sends;
    for (std::size_t i = 0; i < kOperations; ++i) {
      sends.push_back(numbers(DType::f32, kCount * z(ranks()), rank, static_cast<unsigned>(i)));
      reduced.emplace_back(DType::f32, kCount);
      gathered.emplace_back(DType::f32, kCount * z(ranks()));
    }
    for (std::size_t i = 0; i < kOperations; ++i) {
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
      a.submit(*reduces, {.kind = OperationKind::reduce_scatter,
                          .count = kCount,
                          .send = sends[i].data(),
                          .recv = reduced[i].data()});
      b->submit(*gathers, {.kind = OperationKind::all_gather,
                           .count = kCount,
                           .send = sends[i].data(),
                           .recv = gathered[i].data()});
      if (random() % 16 == 0) reduces->synchronize();
      if (random() % 16 == 0) gathers->synchronize();
    }
    reduces->synchronize();
    gathers->synchronize();
    for (std::size_t i = 0; i < kOperations; ++i) {
      std::vector<Buffer> all;
      for (int r = 0; r < ranks(); ++r) {
        all.push_back(numbers(DType::f32, kCount * z(ranks()), r, static_cast<unsigned>(i)));
        ASSERT_TRUE(slice(gathered[i], z(r) * kCount, kCount) == slice(all.back(), 0, kCount));
      }
      ASSERT_TRUE(reduced[i] == slice(ordered_sum(all, DType::f32), z(rank) * kCount, kCount));
    }
    b->submit(*gathers, {.kind = OperationKind::barrier});  // `sends` is read until here
    a.submit(*reduces, {.kind = OperationKind::barrier});
    gathers->synchronize();
    reduces->synchronize();
  });
}

// The rank's own thread waits for one stream while its peers wait for the other.
TEST_P(Collectives, StreamsOfTwoGroupsNeverWaitForEachOther) {
  const Ranks communicators = make();
  run_ranks(ranks(), [&](int rank) {
    Communicator& a = *communicators[z(rank)];
    const auto b = a.split(0, 0);
    const auto first = a.make_stream("first");
    const auto second = a.make_stream("second");
    for (int i = 0; i < 50; ++i) {
      a.submit(*first, {.kind = OperationKind::barrier});
      b->submit(*second, {.kind = OperationKind::barrier});
      (rank % 2 == 0 ? *first : *second).synchronize();
      (rank % 2 == 0 ? *second : *first).synchronize();
    }
  });
}

TEST_P(Collectives, SentBytesAreCounted) {
  on_all([&](Communicator& c, Stream& stream) {
    Buffer whole = numbers(DType::bf16, 100 * z(ranks()), c.rank());
    Buffer part(DType::bf16, 100);
    c.submit(stream, {.kind = OperationKind::reduce_scatter,
                      .count = 100,
                      .type = DType::bf16,
                      .send = whole.data(),
                      .send_type = DType::bf16,
                      .recv = part.data(),
                      .recv_type = DType::bf16});
    EXPECT_EQ(c.sent_bytes(), 200 * z(ranks() - 1));
    Buffer again(DType::bf16, 100 * z(ranks()));
    c.submit(stream, {.kind = OperationKind::all_gather,
                      .count = 100,
                      .type = DType::bf16,
                      .send = part.data(),
                      .recv = again.data()});
    EXPECT_EQ(c.sent_bytes(), 400 * z(ranks() - 1));
    c.submit(stream, {.kind = OperationKind::barrier});
    stream.synchronize();
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, Collectives, testing::ValuesIn(cases(backends())), case_name);

}  // namespace
}  // namespace ration

#pragma once
// What every transport of messages must do. A transport is a type with
//   static constexpr int kRanks;
//   static void run(const std::function<void(Messages&, int rank)>& body)
// whose `run` has `body` run by every rank.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/messages.hpp"

namespace ration::test {

inline Deadline soon() {
  return Clock::now() + std::chrono::seconds(60);
}
constexpr Deadline kPast = Deadline::min();

using Data = std::vector<std::uint8_t>;

/// Bytes that tell their message and place.
inline Data pattern(std::size_t size, int seed) {
  Data data(size);
  std::uint32_t x = static_cast<std::uint32_t>(seed) * 2654435761U + 12345U;
  for (std::uint8_t& byte : data) {
    x = x * 1664525U + 1013904223U;
    byte = static_cast<std::uint8_t>(x >> 24);
  }
  return data;
}

/// One message each way between two ranks that both call this.
inline void exchange(Messages& messages, int peer, std::uint32_t tag) {
  std::uint64_t sent = tag + 7;
  std::uint64_t received = 0;
  const auto in = messages.receive(peer, tag, &received, sizeof received);
  const auto out = messages.send(peer, tag, &sent, sizeof sent);
  ASSERT_TRUE(out->wait(soon()));
  ASSERT_TRUE(in->wait(soon()));
  ASSERT_EQ(received, sent);
}

/// `size` bytes of addresses over few bytes of memory, that repeat.
class Repeated {
 public:
  explicit Repeated(std::size_t size) : size_(size) {
    const int fd = memfd_create("ration test", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, kPart), 0);
    base_ = static_cast<std::uint8_t*>(
        mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (std::size_t at = 0; at < size; at += kPart) {
      EXPECT_NE(mmap(base_ + at, std::min<std::size_t>(kPart, size - at), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_FIXED, fd, 0),
                MAP_FAILED);
    }
    close(fd);
  }
  ~Repeated() { munmap(base_, size_); }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;
  [[nodiscard]] std::uint8_t* data() const { return base_; }

 private:
  static constexpr off_t kPart = off_t{64} << 20;
  std::size_t size_;
  std::uint8_t* base_;
};

template <class Transport>
class Transports : public ::testing::Test {};
TYPED_TEST_SUITE_P(Transports);

TYPED_TEST_P(Transports, MessagesOfOneTagArriveInOrder) {
  TypeParam::run([](Messages& messages, int rank) {
    constexpr int kCount = 200;
    const int next = (rank + 1) % TypeParam::kRanks;
    const int previous = (rank + TypeParam::kRanks - 1) % TypeParam::kRanks;
    std::vector<int> sent(kCount);
    std::vector<int> received(kCount, -1);
    std::vector<std::unique_ptr<Message>> all;
    for (int i = 0; i < kCount; ++i) {
      const auto at = static_cast<std::size_t>(i);
      sent[at] = rank * 1000 + i;
      all.push_back(messages.send(next, 3, &sent[at], sizeof(int)));
      all.push_back(messages.receive(previous, 3, &received[at], sizeof(int)));
    }
    for (const auto& message : all) ASSERT_TRUE(message->wait(soon()));
    for (int i = 0; i < kCount; ++i)
      ASSERT_EQ(received[static_cast<std::size_t>(i)], previous * 1000 + i);
  });
}

TYPED_TEST_P(Transports, TagsAreIndependent) {
  TypeParam::run([](Messages& messages, int rank) {
    constexpr std::uint32_t kTags[] = {0, 1, 77, Messages::kTags - 1};
    constexpr std::size_t kSize = 300'000;  // too large to be sent before it is asked for
    for (int peer = 0; peer < TypeParam::kRanks; ++peer) {
      if (peer == rank) continue;
      std::vector<Data> out;
      std::vector<Data> in(std::size(kTags), Data(kSize));
      std::vector<std::unique_ptr<Message>> sends;
      for (const std::uint32_t tag : kTags) {
        out.push_back(pattern(kSize, static_cast<int>(tag) + 10 * rank));
        sends.push_back(messages.send(peer, tag, out.back().data(), kSize));
      }
      for (std::size_t i = std::size(kTags); i-- > 0;) {  // in the other order
        const auto receive = messages.receive(peer, kTags[i], in[i].data(), kSize);
        ASSERT_TRUE(receive->wait(soon()));
        ASSERT_EQ(in[i], pattern(kSize, static_cast<int>(kTags[i]) + 10 * peer));
      }
      for (const auto& send : sends) ASSERT_TRUE(send->wait(soon()));
    }
  });
}

TYPED_TEST_P(Transports, EverySizeArrivesWhole) {
  TypeParam::run([](Messages& messages, int rank) {
    const int peer = rank ^ 1;
    constexpr std::size_t kSizes[] = {0, 1, 0, 8, 4097, 65536, 1'000'003};
    std::vector<std::unique_ptr<Message>> all;
    std::vector<Data> out;
    std::vector<Data> in;
    for (const std::size_t size : kSizes) {
      out.push_back(pattern(size, static_cast<int>(size % 1000) + rank));
      in.emplace_back(size);
      all.push_back(messages.receive(peer, 5, in.back().data(), size));
      all.push_back(messages.send(peer, 5, out.back().data(), size));
    }
    for (const auto& message : all) ASSERT_TRUE(message->wait(soon()));
    for (std::size_t i = 0; i < std::size(kSizes); ++i)
      ASSERT_EQ(in[i], pattern(kSizes[i], static_cast<int>(kSizes[i] % 1000) + peer));
  });
}

TYPED_TEST_P(Transports, LargeMessagesCrossBothWays) {
  TypeParam::run([](Messages& messages, int rank) {
    constexpr std::size_t kSize = std::size_t{64} << 20;
    if (rank >= 2) return;
    const int peer = 1 - rank;
    const Data out = pattern(kSize, rank);
    Data in(kSize);
    const auto send = messages.send(peer, 9, out.data(), kSize);
    const auto receive = messages.receive(peer, 9, in.data(), kSize);
    ASSERT_TRUE(receive->wait(soon()));
    ASSERT_TRUE(send->wait(soon()));
    ASSERT_TRUE(in == pattern(kSize, peer));
  });
}

TYPED_TEST_P(Transports, SizesBeyondTwoGibibytesArrive) {
  TypeParam::run([](Messages& messages, int rank) {
    if (rank >= 2) return;
#ifdef __SANITIZE_THREAD__
    constexpr std::size_t kSize = (std::size_t{1} << 27) + 4099;  // its shadow would take gigabytes
#else
    constexpr std::size_t kSize = (std::size_t{1} << 31) + 4099;
#endif
    const Repeated memory(kSize);
    std::unique_ptr<Message> message;
    if (rank == 0) {
      memory.data()[kSize - 1] = 77;
      message = messages.send(1, 11, memory.data(), kSize);
    } else {
      message = messages.receive(0, 11, memory.data(), kSize);
    }
    ASSERT_TRUE(message->wait(soon()));
    EXPECT_EQ(memory.data()[kSize - 1], 77);
    exchange(messages, 1 - rank, 12);
  });
}

TYPED_TEST_P(Transports, ThreadsOfOneRankUseDifferentTagsAtOnce) {
  TypeParam::run([](Messages& messages, int rank) {
    const int peer = rank ^ 1;
    const auto many = [&](std::uint32_t tag) {
      for (int i = 0; i < 300; ++i) {
        std::int64_t sent = rank * 10'000 + i;
        std::int64_t received = -1;
        const auto in = messages.receive(peer, tag, &received, sizeof received);
        const auto out = messages.send(peer, tag, &sent, sizeof sent);
        ASSERT_TRUE(in->wait(soon()));
        ASSERT_TRUE(out->wait(soon()));
        ASSERT_EQ(received, peer * 10'000 + i);
      }
    };
    std::thread other(many, 21);
    many(22);
    other.join();
  });
}

TYPED_TEST_P(Transports, ADeadlineThatPassesLosesNothing) {
  TypeParam::run([](Messages& messages, int rank) {
    const int peer = rank ^ 1;
    std::uint64_t value = 0;
    if (rank % 2 == 0) {
      const auto receive = messages.receive(peer, 31, &value, sizeof value);
      EXPECT_FALSE(receive->wait(kPast));
      const auto before = Clock::now();
      EXPECT_FALSE(receive->wait(before + std::chrono::milliseconds(50)));
      EXPECT_GE(Clock::now() - before, std::chrono::milliseconds(50));
      exchange(messages, peer, 32);  // only now does the peer send
      EXPECT_TRUE(receive->wait(soon()));
      EXPECT_EQ(value, 4711U);
      EXPECT_TRUE(receive->wait(kPast)) << "done stays done";
    } else {
      value = 4711;
      exchange(messages, peer, 32);
      const auto send = messages.send(peer, 31, &value, sizeof value);
      EXPECT_TRUE(send->wait(soon()));
    }
  });
}

TYPED_TEST_P(Transports, AskingWithoutWaitingSeesTheEnd) {
  TypeParam::run([](Messages& messages, int rank) {
    const int peer = rank ^ 1;
    std::uint64_t sent = 5;
    std::uint64_t received = 0;
    const auto in = messages.receive(peer, 33, &received, sizeof received);
    const auto out = messages.send(peer, 33, &sent, sizeof sent);
    const Deadline end = soon();
    while (!in->wait(kPast)) ASSERT_LT(Clock::now(), end);
    while (!out->wait(kPast)) ASSERT_LT(Clock::now(), end);
    EXPECT_EQ(received, 5U);
  });
}

TYPED_TEST_P(Transports, AReceiveThatIsGivenUpLeavesItsMemoryAlone) {
  TypeParam::run([](Messages& messages, int rank) {
    const int peer = rank ^ 1;
    Data memory(1 << 20, 0xab);
    messages.receive(peer, 41, memory.data(), memory.size());  // destroyed at once
    for (int i = 0; i < 3; ++i) exchange(messages, peer, 42);  // other tags go on
    EXPECT_EQ(memory, Data(1 << 20, 0xab));
  });
}

REGISTER_TYPED_TEST_SUITE_P(Transports, MessagesOfOneTagArriveInOrder, TagsAreIndependent,
                            EverySizeArrivesWhole, LargeMessagesCrossBothWays,
                            SizesBeyondTwoGibibytesArrive, ThreadsOfOneRankUseDifferentTagsAtOnce,
                            ADeadlineThatPassesLosesNothing, AskingWithoutWaitingSeesTheEnd,
                            AReceiveThatIsGivenUpLeavesItsMemoryAlone);

}  // namespace ration::test

// What gloo makes of messages that are large, of two sizes, or given up.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "messages/gloo_ranks.hpp"
#include "messages/transport_tests.hpp"

namespace ration::test {
namespace {

TEST(GlooMessage, SizesThatDifferWaitForTheDeadline) {
  with_gloo(2, [](Messages& messages, int rank) {
    Data memory(100);
    const auto message = rank == 0 ? messages.send(1, 5, memory.data(), 100)
                                   : messages.receive(0, 5, memory.data(), 60);
    EXPECT_FALSE(message->wait(Clock::now() + std::chrono::milliseconds(100)));
    exchange(messages, 1 - rank, 6);
  });
}

/// Memory that nobody has touched, until someone does.
class Untouched {
 public:
  explicit Untouched(std::size_t size)
      : size_(size),
        base_(static_cast<std::uint8_t*>(
            mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~Untouched() { munmap(base_, size_); }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;

  [[nodiscard]] std::uint8_t* data() const { return base_; }
  [[nodiscard]] Data copy() const { return {base_, base_ + size_}; }
  void await_touch() const {
    unsigned char present = 0;
    const Deadline end = soon();
    while ((present & 1) == 0 && Clock::now() < end) mincore(base_, 1, &present);
    EXPECT_EQ(present & 1, 1);
  }

 private:
  std::size_t size_;
  std::uint8_t* base_;
};

constexpr std::size_t kLarge = std::size_t{128} << 20;

/// What `attempt` of rank 0 says, on both ranks. A message may pass whole before its end is given
/// up, on a busy machine; then they try again, under the next tag.
void until_halfway(Messages& messages, int rank,
                   const std::function<bool(std::uint32_t tag)>& attempt) {
  constexpr std::uint32_t kAttempts = 20;
  for (std::uint32_t tag = 0; tag < kAttempts; ++tag) {
    bool halfway = attempt(tag);
    const auto message = rank == 0 ? messages.send(1, 100 + tag, &halfway, 1)
                                   : messages.receive(0, 100 + tag, &halfway, 1);
    ASSERT_TRUE(message->wait(soon()));
    if (halfway) return;
  }
  FAIL() << "every message passed whole: the test shows nothing";
}

TEST(GlooMessage, AReceiveGivenUpHalfwayLeavesItsMemoryAndOtherTagsAlone) {
  with_gloo(2, [](Messages& messages, int rank) {
    until_halfway(messages, rank, [&](std::uint32_t tag) {
      if (rank == 1) {
        const Data memory(kLarge, 1);
        const auto send = messages.send(0, tag, memory.data(), kLarge);
        exchange(messages, 0, 50 + tag);
        EXPECT_TRUE(send->wait(soon()));
        return false;
      }
      const Untouched memory(kLarge);
      auto receive = messages.receive(1, tag, memory.data(), kLarge);
      memory.await_touch();
      receive.reset();
      const Data before = memory.copy();
      exchange(messages, 1, 50 + tag);
      EXPECT_EQ(std::memcmp(memory.data(), before.data(), kLarge), 0);
      return before.back() == 0;
    });
  });
}

TEST(GlooMessage, ASendGivenUpHalfwayLeavesOtherTagsAlone) {
  std::vector<std::unique_ptr<Untouched>> received;
  for (int i = 0; i < 20; ++i) received.push_back(std::make_unique<Untouched>(kLarge));
  with_gloo(2, [&](Messages& messages, int rank) {
    until_halfway(messages, rank, [&](std::uint32_t tag) {
      const Untouched& memory = *received[tag];
      bool whole = false;
      if (rank == 0) {
        auto sent = std::make_unique<Data>(kLarge, std::uint8_t{1});
        auto send = messages.send(1, tag, sent->data(), kLarge);
        memory.await_touch();
        send.reset();
        sent.reset();
        exchange(messages, 1, 50 + tag);
        EXPECT_TRUE(messages.receive(1, 80 + tag, &whole, 1)->wait(soon()));
        return !whole;
      }
      const auto receive = messages.receive(0, tag, memory.data(), kLarge);
      exchange(messages, 0, 50 + tag);
      EXPECT_TRUE(receive->wait(soon()));
      EXPECT_EQ(memory.data()[0], 1);
      whole = memory.data()[kLarge - 1] == 1;
      EXPECT_TRUE(messages.send(0, 80 + tag, &whole, 1)->wait(soon()));
      return false;
    });
  });
}

}  // namespace
}  // namespace ration::test

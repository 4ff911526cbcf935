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

constexpr std::size_t kLarge = std::size_t{256} << 20;

TEST(GlooMessage, AReceiveGivenUpHalfwayLeavesItsMemoryAndOtherTagsAlone) {
  with_gloo(2, [](Messages& messages, int rank) {
    if (rank == 0) {
      const Untouched memory(kLarge);
      auto receive = messages.receive(1, 5, memory.data(), kLarge);
      memory.await_touch();
      receive.reset();
      const Data before = memory.copy();
      for (std::uint32_t tag = 6; tag < 9; ++tag) exchange(messages, 1, tag);
      EXPECT_TRUE(memory.copy() == before);
      EXPECT_EQ(before.back(), 0) << "it was received whole: the test shows nothing";
    } else {
      const Data memory(kLarge, 1);
      const auto send = messages.send(0, 5, memory.data(), kLarge);
      for (std::uint32_t tag = 6; tag < 9; ++tag) exchange(messages, 0, tag);
    }
  });
}

TEST(GlooMessage, ASendGivenUpHalfwayLeavesOtherTagsAlone) {
  const Untouched received(kLarge);
  with_gloo(2, [&](Messages& messages, int rank) {
    if (rank == 0) {
      auto memory = std::make_unique<Data>(kLarge, std::uint8_t{1});
      auto send = messages.send(1, 5, memory->data(), kLarge);
      received.await_touch();
      send.reset();
      memory.reset();
      for (std::uint32_t tag = 6; tag < 9; ++tag) exchange(messages, 1, tag);
    } else {
      const auto receive = messages.receive(0, 5, received.data(), kLarge);
      for (std::uint32_t tag = 6; tag < 9; ++tag) exchange(messages, 0, tag);
      EXPECT_TRUE(receive->wait(soon()));
      EXPECT_EQ(received.data()[0], 1);
      EXPECT_EQ(received.data()[kLarge - 1], 0) << "it was sent whole: the test shows nothing";
    }
  });
}

}  // namespace
}  // namespace ration::test

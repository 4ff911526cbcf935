// What gloo makes of messages that are large, of two sizes, or given up.

#include <gtest/gtest.h>

#include "messages/gloo_ranks.hpp"
#include "messages/halfway.hpp"
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

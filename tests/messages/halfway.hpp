#pragma once
// Messages that end while part of them is on its way.

#include <cstdint>
#include <functional>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "messages/transport_tests.hpp"

namespace ration::test {

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

constexpr std::size_t kLarge = std::size_t{48} << 20;

/// What `attempt` of rank 0 says, on both ranks. A message may pass whole before its end is given
/// up, on a busy machine; then they try again, under the next tag.
inline void until_halfway(Messages& messages, int rank,
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

}  // namespace ration::test

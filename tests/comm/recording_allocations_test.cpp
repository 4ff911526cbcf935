// A recording is on for days: it asks for no memory per operation. Counts every call of operator
// new in the program.

#include <atomic>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "comm/decorators/decorators.hpp"
#include "comm/threads/threads.hpp"

namespace {
std::atomic<long> asked{0};
}  // namespace

void* operator new(std::size_t size) {
  ++asked;
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace ration {
namespace {

long asked_by(Communicator& c, Stream& stream, int operations) {
  Bytes record(100);
  Bytes result;
  const Control::Combine combine = [](std::span<const Bytes>, Bytes&) {};
  const auto work = [&](int n) {
    for (int i = 0; i < n; ++i) {
      c.submit(stream, {.kind = OperationKind::barrier, .tag = "a tag that is long enough"});
      c.control().fold("step", record, combine, result, "a header that is long enough");
    }
    stream.synchronize();
  };
  work(2000);
  const long before = asked;
  work(operations);
  return asked - before;
}

TEST(Recording, AllocatesNothingPerOperation) {
  const auto bare = make_threads(1)[0];
  const auto bare_stream = bare->make_stream("test", 256);
  const long without = asked_by(*bare, *bare_stream, 5000);
  const auto [c, recording] = make_recording(make_threads(1)[0]);
  const auto stream = c->make_stream("test", 256);
  EXPECT_EQ(asked_by(*c, *stream, 5000), without);
}

}  // namespace
}  // namespace ration

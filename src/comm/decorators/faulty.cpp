// Makes operations late, lost or refused, so that tests see what the other ranks make of it.

#include <thread>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "comm/decorators/decorator.hpp"
#include "comm/decorators/decorators.hpp"
#include "device/host/host_stream.hpp"

namespace ration {
namespace {

using Decide = std::function<Fault(Sequence, const Operation&)>;

constexpr Sequence kDropped = ~Sequence{0} - 1;

/// A task that takes its time, counted from when its turn comes.
class Delay {
 public:
  explicit Delay(std::chrono::milliseconds length) : length_(length) {}
  bool operator()(bool may_block) {
    if (end_ == Deadline{}) end_ = Clock::now() + length_;
    if (may_block) std::this_thread::sleep_until(end_);
    return Clock::now() >= end_;
  }

 private:
  std::chrono::milliseconds length_;
  Deadline end_{};
};

class Faulty final : public Decorator {
 public:
  Faulty(std::shared_ptr<Communicator> inner, Decide decide)
      : Decorator(std::move(inner)), decide_(std::move(decide)) {}

  Sequence submit(Stream& stream, const Operation& operation) override {
    const Sequence number = submitted_++;
    const Fault fault = decide_(number, operation);
    if (fault.fail) {
      throw CommunicationError(
          fmt::format("rank {}: {}: made to fail", rank(), describe(operation, number)));
    }
    if (fault.drop) return kDropped;
    if (fault.delay.count() > 0) static_cast<HostStream&>(stream).enqueue(Delay(fault.delay));
    return Decorator::submit(stream, operation);
  }

  void release(Stream& stream, Sequence sequence) override {
    if (sequence != kDropped) Decorator::release(stream, sequence);
  }

  std::shared_ptr<Communicator> split(int color, int key) override {
    return make_faulty(inner()->split(color, key), decide_);
  }

 private:
  const Decide decide_;
  Sequence submitted_ = 0;
};

}  // namespace

std::shared_ptr<Communicator> make_faulty(std::shared_ptr<Communicator> inner, Decide decide) {
  return std::make_shared<Faulty>(std::move(inner), std::move(decide));
}

}  // namespace ration

#pragma once
// Runs a function on gloo's own thread, between two of its events.

#include <atomic>
#include <functional>

#include <gloo/transport/tcp/device.h>

#include "core/signal.hpp"

namespace ration {

/// To be kept until gloo's thread has ended: it may look at a handler that was just taken back.
class LoopCall final : public gloo::transport::tcp::Handler {
 public:
  /// Returns when `function` has run. Once. Throws what gloo does, IoError without descriptors.
  void run(gloo::transport::tcp::Device& device, std::function<void()> function);

  void handleEvents(int events) override;  // NOLINT(readability-identifier-naming): gloo's name

 private:
  std::function<void()> function_;
  std::atomic<bool> ran_{false};
  Signal signal_;
};

}  // namespace ration

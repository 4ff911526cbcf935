#pragma once
// Runs a function on gloo's own thread, between two of its events.

#include <functional>

#include <gloo/transport/tcp/device.h>

namespace ration {

/// Returns when `function` has run. Throws what gloo does, IoError without descriptors.
void on_loop(gloo::transport::tcp::Device& device, const std::function<void()>& function);

}  // namespace ration

#include "comm/gloo/message.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "comm/gloo/mesh.hpp"

namespace ration {

ConnectionLost connection_lost(int rank, int peer, std::string_view cause) {
  if (cause.starts_with('[')) {  // where in gloo's source
    if (const auto end = cause.find("] "); end != std::string_view::npos)
      cause.remove_prefix(end + 2);
  }
  return {peer, fmt::format("rank {}: connection to rank {} lost: {}", rank, peer, cause)};
}

GlooMessage::GlooMessage(std::shared_ptr<Mesh> mesh, int peer, Way way,
                         std::unique_ptr<gloo::transport::UnboundBuffer> buffer)
    : mesh_(std::move(mesh)), peer_(peer), way_(way), buffer_(std::move(buffer)) {}

GlooMessage::~GlooMessage() {
  if (done_ || lost_) return;  // gloo holds it no more
  try {
    if (wait(Deadline::min())) return;
    mesh_->abandon(std::move(buffer_));
  } catch (const std::exception&) {  // the connection is closed, or no memory: nothing else to do
  }
}

bool GlooMessage::wait(Deadline deadline) {
  constexpr std::chrono::milliseconds kSlice = std::chrono::hours(1);  // far from any overflow
  while (!done_) {
    const auto left =
        std::max(Clock::duration::zero(), deadline - std::min(deadline, Clock::now()));
    const auto slice = std::min(kSlice, std::chrono::ceil<std::chrono::milliseconds>(left));
    done_ = wait_for(slice);
    if (!done_ && Clock::now() >= deadline) break;
  }
  return done_;
}

// gloo says by the same exception that time is up and that the connection is gone.
bool GlooMessage::wait_for(std::chrono::milliseconds timeout) {
  try {
    return way_ == Way::send ? buffer_->waitSend(timeout) : buffer_->waitRecv(timeout);
  } catch (const std::exception&) {
    check_connection();
    return false;
  }
}

// A wait that is aborted before it begins returns at once, and throws only where the connection is
// gone. It takes no completion away.
void GlooMessage::check_connection() {
  constexpr std::chrono::milliseconds kUnused = std::chrono::hours(1);
  try {
    if (way_ == Way::send) {
      buffer_->abortWaitSend();
      buffer_->waitSend(kUnused);
    } else {
      buffer_->abortWaitRecv();
      buffer_->waitRecv(kUnused);
    }
  } catch (const std::exception& error) {
    lost_ = true;
    throw connection_lost(mesh_->rank(), peer_, error.what());
  }
}

}  // namespace ration

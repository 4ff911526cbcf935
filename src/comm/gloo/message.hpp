#pragma once
// One message on its way through gloo.

#include <memory>
#include <string>
#include <string_view>

#include <gloo/transport/unbound_buffer.h>

#include "comm/messages.hpp"

namespace ration {

class Mesh;

class GlooMessage final : public Message {
 public:
  enum class Way { send, receive };
  GlooMessage(std::shared_ptr<Mesh> mesh, int peer, Way way,
              std::unique_ptr<gloo::transport::UnboundBuffer> buffer);
  ~GlooMessage() override;
  GlooMessage(const GlooMessage&) = delete;
  GlooMessage& operator=(const GlooMessage&) = delete;

  bool wait(Deadline deadline) override;

 private:
  bool wait_for(std::chrono::milliseconds timeout);
  void check_connection();

  const std::shared_ptr<Mesh> mesh_;
  const int peer_;
  const Way way_;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  bool done_ = false;
  bool lost_ = false;
};

/// The error that `cause`, an exception of gloo's, means.
ConnectionLost connection_lost(int rank, int peer, std::string_view cause);

}  // namespace ration

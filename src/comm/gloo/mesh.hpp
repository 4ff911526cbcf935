#pragma once
// A process's connections with every other of the job.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "comm/gloo/loop_call.hpp"
#include "comm/gloo/message.hpp"
#include "comm/messages.hpp"
#include "control/control.hpp"

namespace ration {

class Mesh {
 public:
  /// Listens for every peer at `address`. Throws what gloo does.
  Mesh(int rank, int size, const std::string& address);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  /// Where each peer is to connect; 0 for this rank itself.
  [[nodiscard]] const std::vector<std::uint16_t>& ports() const { return ports_; }

  struct Place {
    std::string address;
    std::uint16_t port = 0;
  };
  /// To each peer's place; why not, or nothing. Ends early when `control` is aborted.
  std::string connect(Control& control, const std::vector<Place>& places, Deadline deadline);

  /// A message under `slot`, whose meaning both ends share. Throws ConnectionLost.
  static std::unique_ptr<Message> send(const std::shared_ptr<Mesh>& mesh, int peer,
                                       std::uint64_t slot, const void* data, std::size_t bytes);
  static std::unique_ptr<Message> receive(const std::shared_ptr<Mesh>& mesh, int peer,
                                          std::uint64_t slot, void* data, std::size_t bytes);

  /// Lets gloo go on with a buffer without its memory: what arrives for it is dropped, what it
  /// still has to send is zeros.
  void abandon(std::unique_ptr<gloo::transport::UnboundBuffer> buffer);

 private:
  static std::unique_ptr<Message> post(const std::shared_ptr<Mesh>& mesh, int peer,
                                       GlooMessage::Way way, std::uint64_t slot, void* data,
                                       std::size_t bytes);

  struct Abandoned {
    explicit Abandoned(std::unique_ptr<gloo::transport::UnboundBuffer> gloo_buffer);
    ~Abandoned();
    Abandoned(const Abandoned&) = delete;
    Abandoned& operator=(const Abandoned&) = delete;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
    void* stand_in;
    LoopCall call;
  };

  const int rank_;
  const int size_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Abandoned>> abandoned_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> pairs_;
  // Buffers belong to a context without pairs: a wait that times out makes gloo close all pairs of
  // the buffer's context, and a deadline that passes must leave the connections alone.
  std::shared_ptr<gloo::transport::Context> buffers_;
  std::vector<std::uint16_t> ports_;
};

}  // namespace ration

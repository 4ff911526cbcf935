#pragma once
// A communicator for tests: what it is given it moves through memory that peers can read, so that a
// suite written with plain arrays runs over shared memory too.

#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "comm/decorators/decorator.hpp"
#include "comm/validate.hpp"
#include "device/host/host_stream.hpp"

namespace ration {

class Bounce final : public Decorator {
 public:
  using Decorator::Decorator;

  Sequence submit(Stream& stream, const Operation& asked) override {
    validate(asked, rank(), size());
    auto& host = static_cast<HostStream&>(stream);
    Operation operation = asked;
    const std::size_t ranks = static_cast<std::size_t>(size());
    const bool scatters = asked.kind == OperationKind::reduce_scatter;
    const bool reduces = scatters || asked.kind == OperationKind::all_reduce;
    const bool plain = asked.type == DType::f64 || asked.type == DType::i64;
    const DType send_type = reduces && !plain ? asked.send_type : asked.type;
    const DType recv_type = scatters ? asked.recv_type : asked.type;
    const std::size_t send_bytes =
        asked.send ? asked.count * (scatters ? ranks : 1) * size_of(send_type) : 0;
    const std::size_t recv_bytes = asked.recv && asked.kind != OperationKind::send
                                       ? asked.count *
                                             (asked.kind == OperationKind::all_gather ? ranks : 1) *
                                             size_of(recv_type)
                                       : 0;
    if (send_bytes > 0) {
      std::byte* memory = room(send_bytes);
      operation.send = memory;
      host.enqueue([memory, from = asked.send, send_bytes](bool) {
        std::memcpy(memory, from, send_bytes);
        return true;
      });
    }
    std::byte* memory = recv_bytes > 0 ? room(recv_bytes) : nullptr;
    if (memory) {
      operation.recv = memory;
      host.enqueue([memory, from = asked.recv, recv_bytes](bool) {  // what is added to
        std::memcpy(memory, from, recv_bytes);
        return true;
      });
    }
    const Sequence sequence = Decorator::submit(stream, operation);
    if (memory) {
      host.enqueue([memory, to = asked.recv, recv_bytes](bool) {
        std::memcpy(to, memory, recv_bytes);
        return true;
      });
    }
    return sequence;
  }

  std::shared_ptr<Communicator> split(int color, int key) override {
    return std::make_shared<Bounce>(inner()->split(color, key));
  }

 private:
  std::byte* room(std::size_t bytes) {
    if (bytes > left_) {
      left_ = std::max(bytes, std::size_t{1} << 22);
      memory_.push_back(inner()->allocate(left_));
      next_ = memory_.back()->data();
    }
    std::byte* result = next_;
    const std::size_t taken = std::min(left_, (bytes + 255) / 256 * 256);
    next_ += taken;
    left_ -= taken;
    return result;
  }

  std::vector<std::unique_ptr<Memory>> memory_;
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
};

}  // namespace ration

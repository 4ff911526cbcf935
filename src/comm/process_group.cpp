#include <ration/process_group.hpp>

#include <utility>

#include <ration/error.hpp>

#include "comm/communicator.hpp"
#include "device/host/host_stream.hpp"

namespace ration {
namespace {

Communicator& inside(const std::shared_ptr<Communicator>& communicator) {
  if (!communicator) throw InvalidArgument("a ProcessGroup that was never given any ranks is used");
  return *communicator;
}

// In the caller's thread; the caller's memory is free again afterwards.
void run(const std::shared_ptr<Communicator>& communicator, const Operation& operation) {
  HostStream stream(HostStream::Mode::immediate, "caller");
  Communicator& c = inside(communicator);
  const Sequence sequence = c.submit(stream, operation);
  c.release(stream, sequence);
  stream.synchronize();
}

}  // namespace

ProcessGroup::ProcessGroup(std::shared_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)) {}

int ProcessGroup::rank() const {
  return inside(communicator_).rank();
}

int ProcessGroup::size() const {
  return inside(communicator_).size();
}

ProcessGroup ProcessGroup::split(int color, int key) const {
  return ProcessGroup(inside(communicator_).split(color, key));
}

void ProcessGroup::barrier() const {
  run(communicator_, {.kind = OperationKind::barrier, .tag = "barrier"});
}

void ProcessGroup::all_reduce(std::span<double> values) const {
  run(communicator_, {.kind = OperationKind::all_reduce,
                      .count = values.size(),
                      .type = DType::f64,
                      .send = values.data(),
                      .send_type = DType::f64,
                      .recv = values.data(),
                      .recv_type = DType::f64,
                      .tag = "caller's"});
}

void ProcessGroup::broadcast(std::span<std::byte> bytes, int root) const {
  run(communicator_, {.kind = OperationKind::broadcast,
                      .count = bytes.size(),
                      .type = DType::u8,
                      .send = bytes.data(),
                      .recv = bytes.data(),
                      .peer = root,
                      .tag = "caller's"});
}

void ProcessGroup::abort(std::string_view reason) const {
  inside(communicator_).abort(reason);
}

}  // namespace ration

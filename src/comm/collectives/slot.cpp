#include "comm/collectives/slot.hpp"

#include <algorithm>
#include <cstring>

namespace ration {
namespace {

DType sent_type(const Operation& operation) {
  return operation.kind == OperationKind::all_reduce ? operation.send_type : operation.type;
}

}  // namespace

bool Posting::is_eager(const Operation& operation) {
  return (operation.kind == OperationKind::broadcast ||
          operation.kind == OperationKind::all_reduce) &&
         operation.count * size_of(sent_type(operation)) <= kEager;
}

void Posting::set(const Operation& operation) {
  fingerprint = ration::fingerprint(operation);
  history = operation.history;
  count = operation.count;
  source = {};
  target = {};
  peer = operation.peer;
  kind = operation.kind;
  type = operation.type;
  send_type = operation.send_type;
  const std::size_t length = std::min(std::strlen(operation.tag), sizeof tag - 1);
  std::memcpy(tag, operation.tag, length);
  tag[length] = '\0';
  if (is_eager(operation) && operation.send && operation.count > 0) {
    std::memcpy(eager, operation.send, operation.count * size_of(sent_type(operation)));
  }
}

std::string Posting::describe(std::uint64_t number) const {
  const Operation operation{.kind = kind,
                            .count = static_cast<std::size_t>(count),
                            .type = type,
                            .send_type = send_type,
                            .peer = peer};
  return ration::describe(operation, number, tag);
}

}  // namespace ration

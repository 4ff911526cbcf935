#include "comm/communicator.hpp"

namespace ration {

std::uint64_t sent_by(const Operation& operation, int size) {
  const auto others = static_cast<std::uint64_t>(size - 1);
  const std::uint64_t bytes = operation.count * size_of(operation.type);
  switch (operation.kind) {
    case OperationKind::reduce_scatter:
    case OperationKind::all_gather:
      return bytes * others;
    case OperationKind::all_reduce:  // a reduce-scatter and an all-gather of a size-th each
      return 2 * bytes * others / static_cast<std::uint64_t>(size);
    case OperationKind::broadcast:  // everyone but the last of a chain passes it on
      return bytes * others / static_cast<std::uint64_t>(size);
    case OperationKind::send:
      return bytes;
    case OperationKind::recv:
    case OperationKind::barrier:
      return 0;
  }
  return 0;
}

}  // namespace ration

#include "comm/operation.hpp"

#include <fmt/format.h>

namespace ration {
namespace {

constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdu;
  return hash ^ (hash >> 33);
}

bool is_reduction(OperationKind kind) {
  return kind == OperationKind::reduce_scatter || kind == OperationKind::all_reduce;
}

}  // namespace

std::string_view name_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::all_reduce:
      return "all_reduce";
    case OperationKind::reduce_scatter:
      return "reduce_scatter";
    case OperationKind::all_gather:
      return "all_gather";
    case OperationKind::broadcast:
      return "broadcast";
    case OperationKind::send:
      return "send";
    case OperationKind::recv:
      return "recv";
    case OperationKind::barrier:
      return "barrier";
  }
  return "?";
}

std::uint64_t fingerprint(const Operation& operation) {
  const auto kind =
      operation.kind == OperationKind::recv ? OperationKind::send : operation.kind;  // they match
  std::uint64_t hash = mix(1, static_cast<std::uint64_t>(kind));
  if (kind == OperationKind::barrier) return hash;
  for (const char* c = operation.tag; *c; ++c) hash = mix(hash, static_cast<unsigned char>(*c));
  hash = mix(hash, operation.count);
  hash = mix(hash, static_cast<std::uint64_t>(operation.type));
  if (is_reduction(kind) && is_parameter_type(operation.type)) {
    hash = mix(hash, static_cast<std::uint64_t>(operation.send_type));
  }
  if (kind == OperationKind::broadcast) {
    hash = mix(hash, static_cast<std::uint64_t>(operation.peer));
  }
  return hash;
}

std::uint64_t combine_fingerprints(std::uint64_t history, std::uint64_t next) {
  return mix(history, next);
}

std::string describe(const Operation& operation, std::uint64_t number) {
  return describe(operation, number, operation.tag);
}

std::string describe(const Operation& operation, std::uint64_t number, std::string_view tag) {
  std::string text = fmt::format("{} #{}", name_of(operation.kind), number);
  if (!tag.empty()) text += fmt::format(" \"{}\"", tag);
  if (operation.kind == OperationKind::barrier) return text;
  text += fmt::format(" ({} x {}", name_of(operation.type), operation.count);
  if (is_reduction(operation.kind) && is_parameter_type(operation.type) &&
      operation.send_type != operation.type) {
    text += fmt::format(" from {}", name_of(operation.send_type));
  }
  if (operation.kind == OperationKind::broadcast) text += fmt::format(", root {}", operation.peer);
  if (operation.kind == OperationKind::send) text += fmt::format(", to {}", operation.peer);
  if (operation.kind == OperationKind::recv) text += fmt::format(", from {}", operation.peer);
  return text + ")";
}

}  // namespace ration

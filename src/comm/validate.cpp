#include "comm/validate.hpp"

#include <fmt/format.h>

#include <ration/error.hpp>

namespace ration {
namespace {

[[noreturn]] void refuse(const Operation& operation, int rank, const std::string& why) {
  throw InvalidArgument(fmt::format("rank {}: {} \"{}\" ({} x {}): {}", rank,
                                    name_of(operation.kind), operation.tag, name_of(operation.type),
                                    operation.count, why));
}

void validate_reduction(const Operation& operation, int rank) {
  const bool scatter = operation.kind == OperationKind::reduce_scatter;
  const bool plain = operation.type == DType::f64 || operation.type == DType::i64;
  if (!is_parameter_type(operation.type) && (scatter || !plain)) {
    refuse(operation, rank,
           fmt::format("it sums f32, bf16 and f16{}", scatter ? "" : ", f64 and i64"));
  }
  if (!plain && !is_parameter_type(operation.send_type)) {
    refuse(operation, rank, fmt::format("it cannot send {}", name_of(operation.send_type)));
  }
  if (scatter && operation.recv_type != operation.type && operation.recv_type != DType::f32) {
    refuse(operation, rank,
           fmt::format("its result is {} or f32, not {}", name_of(operation.type),
                       name_of(operation.recv_type)));
  }
  if (operation.add && (!scatter || operation.recv_type != DType::f32)) {
    refuse(operation, rank, "only a reduce_scatter into f32 can add");
  }
}

}  // namespace

void validate(const Operation& operation, int rank, int size) {
  using Kind = OperationKind;
  const Kind kind = operation.kind;
  if (kind == Kind::barrier) return;
  if (kind == Kind::reduce_scatter || kind == Kind::all_reduce) validate_reduction(operation, rank);

  const bool has_peer = kind == Kind::broadcast || kind == Kind::send || kind == Kind::recv;
  if (has_peer && (operation.peer < 0 || operation.peer >= size)) {
    refuse(operation, rank,
           fmt::format("there is no rank {} in a group of {}", operation.peer, size));
  }
  if ((kind == Kind::send || kind == Kind::recv) && operation.peer == rank) {
    refuse(operation, rank, "a rank cannot send to itself");
  }
  if (operation.shards && kind != Kind::all_gather) {
    refuse(operation, rank, "only an all_gather can take shared shards");
  }
  if (operation.count == 0) return;
  const bool sends =
      kind == Kind::broadcast ? operation.peer == rank : kind != Kind::recv && !operation.shards;
  if (sends && !operation.send) refuse(operation, rank, "`send` is null");
  if (kind != Kind::send && !operation.recv) refuse(operation, rank, "`recv` is null");
}

Operation normalized(const Operation& operation) {
  Operation result = operation;
  if (operation.type == DType::f64 || operation.type == DType::i64) {
    result.send_type = operation.type;
  }
  if (operation.kind == OperationKind::all_reduce) result.recv_type = operation.type;
  return result;
}

}  // namespace ration

#pragma once
// One collective operation, as a rank asks for it.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <ration/dtype.hpp>

namespace ration {

enum class OperationKind : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  send,
  recv,
  barrier
};
std::string_view name_of(OperationKind kind);

class SharedShards;

/// What is asked; plain data, copied into the stream. `tag` must outlive the operation.
struct Operation {
  OperationKind kind = OperationKind::barrier;
  std::size_t count =
      0;  ///< elements: of a shard (reduce_scatter, all_gather), otherwise of the whole buffer
  DType type = DType::f32;  ///< what travels ("wire type")
  const void* send = nullptr;
  DType send_type =
      DType::f32;  ///< reduce_scatter, all_reduce: of `send`; rounded to `type` on the way in
  void* recv = nullptr;
  DType recv_type = DType::f32;    ///< reduce_scatter: `type`, or f32 (widened)
  bool add = false;                ///< reduce_scatter: recv += sum, for an fp32 recv
  int peer = -1;                   ///< broadcast: the root; send, recv: the other rank
  SharedShards* shards = nullptr;  ///< all_gather: of published shards; `send` is then unused
  const char* tag = "";            ///< in messages and traces: the unit's name
  std::uint64_t history = 0;       ///< of all operations so far, to be compared too; 0: not kept
};

/// What all ranks must agree on, to compare and to print. Send and recv match each other.
std::uint64_t fingerprint(const Operation& operation);
std::uint64_t combine_fingerprints(std::uint64_t history, std::uint64_t next);

/// For messages: `reduce_scatter #17 "h.3" (f32 x 4096)`. With a tag of one's own where
/// `operation.tag` may be gone.
std::string describe(const Operation& operation, std::uint64_t number);
std::string describe(const Operation& operation, std::uint64_t number, std::string_view tag);

}  // namespace ration

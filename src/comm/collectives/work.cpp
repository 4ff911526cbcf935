#include "comm/collectives/work.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/align.hpp"
#include "device/host/arithmetic.hpp"
#include "device/host/float_control.hpp"

namespace ration::work {
namespace {

// Element by element, so that `to` may be one of the sources.
template <class T>
void sum_plain(const std::vector<const void*>& sources, void* to, std::size_t count) {
  // Integers wrap around.
  using Sum = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                          std::type_identity<T>>::type;
  const FloatControl control;
  auto* out = static_cast<T*>(to);
  for (std::size_t i = 0; i < count; ++i) {
    auto total = static_cast<Sum>(static_cast<const T*>(sources[0])[i]);
    for (std::size_t s = 1; s < sources.size(); ++s) {
      total += static_cast<Sum>(static_cast<const T*>(sources[s])[i]);
    }
    out[i] = static_cast<T>(total);
  }
}

}  // namespace

void* at(void* pointer, std::size_t elements, DType type) {
  return static_cast<std::byte*>(pointer) + elements * size_of(type);
}

const void* at(const void* pointer, std::size_t elements, DType type) {
  return static_cast<const std::byte*>(pointer) + elements * size_of(type);
}

void copy(void* to, const void* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

void sum(const Operation& operation, const std::vector<const void*>& sources, DType source_type,
         void* to, std::size_t count) {
  if (count == 0) return;
  if (operation.type == DType::f64) {
    sum_plain<double>(sources, to, count);
  } else if (operation.type == DType::i64) {
    sum_plain<std::int64_t>(sources, to, count);
  } else {
    arithmetic().ordered_sum(sources.data(), sources.size(), source_type, operation.type, to,
                             operation.recv_type, operation.add, count);
  }
}

Part part_of(const Operation& operation, int rank, int size) {
  if (operation.kind == OperationKind::reduce_scatter) {
    return {operation.count * static_cast<std::size_t>(rank), operation.count};
  }
  const auto ranks = static_cast<std::size_t>(size);
  const auto length =
      round_up((operation.count + ranks - 1) / ranks, static_cast<std::size_t>(kAlignElements));
  const std::size_t begin = std::min(operation.count, length * static_cast<std::size_t>(rank));
  return {begin, std::min(operation.count - begin, length)};
}

}  // namespace ration::work

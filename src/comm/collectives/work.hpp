#pragma once
// What a rank does with data once it can read it.

#include <vector>

#include "comm/operation.hpp"

namespace ration::work {

/// Elements of a buffer.
struct Part {
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// What `rank` sums: of a reduce_scatter its shard, of an all_reduce an aligned size-th.
Part part_of(const Operation& operation, int rank, int size);

/// to[0, count) = (or += ) the ordered sum of the sources, one per rank in rank order, elements of
/// `source_type`; as the operation says.
void sum(const Operation& operation, const std::vector<const void*>& sources, DType source_type,
         void* to, std::size_t count);

/// Nothing where both are the same.
void copy(void* to, const void* from, std::size_t bytes);

/// `pointer` advanced by `elements` of `type`.
void* at(void* pointer, std::size_t elements, DType type);
const void* at(const void* pointer, std::size_t elements, DType type);

}  // namespace ration::work

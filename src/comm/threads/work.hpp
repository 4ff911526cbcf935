#pragma once
// What a rank does with its peers' memory once they have posted.

#include "comm/threads/group.hpp"

namespace ration::work {

/// recv = ordered sum over all ranks of their `source`, elements [begin, begin + count) of it.
void sum(ThreadsGroup& group, const Operation& operation, std::uint64_t number, std::size_t begin,
         std::size_t count, void* to);

/// The part of an all_reduce that `rank` sums.
struct Part {
  std::size_t begin = 0;
  std::size_t count = 0;
};
Part part_of(const Operation& operation, int rank, int size);

/// Nothing where both are the same.
void copy(void* to, const void* from, std::size_t bytes);

/// `pointer` advanced by `elements` of `type`.
void* at(void* pointer, std::size_t elements, DType type);
const void* at(const void* pointer, std::size_t elements, DType type);

}  // namespace ration::work

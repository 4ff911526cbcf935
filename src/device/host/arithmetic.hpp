#pragma once
// Arithmetic over arrays on the host: casts, ordered sums, norms. Every function is compiled once
// per instruction set and gives the same bits in each; `arithmetic()` is the best this CPU has,
// `arithmetic_levels()` lets tests walk them all.

#include <cstddef>
#include <cstdint>
#include <span>

#include <ration/dtype.hpp>

namespace ration {

/// Elements of a norm block (see docs/numerics.md).
inline constexpr std::size_t kNormBlock = 1024;

struct Arithmetic {
  const char* name;  ///< "baseline", "x86-64-v3", "x86-64-v4"

  /// to[i] = from[i], rounded to nearest even where `to_type` is narrower. Types f32, bf16, f16.
  /// `from == to` is allowed when the types are equal (nothing happens).
  void (*cast)(const void* from, DType from_type, void* to, DType to_type, std::size_t count);

  /// The ordered sum of a reduce, element by element: each source's element is rounded to
  /// `wire_type` and widened to fp32; these are summed in source order (starting from the first,
  /// not from 0); the sum is rounded once to `wire_type`. Then to[i] = sum, or to[i] += sum (fp32
  /// `to` only) with `add`. `to` may be one of the sources at the same place. `source_type` f32,
  /// bf16 or f16; `wire_type` f32, bf16 or f16; `to_type` is `wire_type` or f32.
  void (*ordered_sum)(const void* const* sources, std::size_t source_count, DType source_type,
                      DType wire_type, void* to, DType to_type, bool add, std::size_t count);

  /// to[i] += from[i], `to` fp32.
  void (*add)(const void* from, DType from_type, float* to, std::size_t count);

  /// Sum of squares of at most kNormBlock elements in 16 double accumulators (element i goes to i
  /// mod 16), added by a fixed tree.
  double (*norm_block)(const void* values, DType type, std::size_t count);
};

const Arithmetic& arithmetic();
std::span<const Arithmetic* const> arithmetic_levels();

/// Sum of squares of a shard, in blocks of kNormBlock from its start, the blocks added by a fixed
/// binary tree: fed in order, in pieces that are multiples of kNormBlock but for the last. The tree
/// is that of a binary counter: two sums of equal height merge at once; what is left at the end is
/// added from the last to the first.
class NormTree {
 public:
  void add(const void* values, DType type, std::size_t count);
  void add_block(double sum);
  [[nodiscard]] double sum() const;
  void clear() { blocks_ = 0; }

 private:
  std::uint64_t blocks_ = 0;
  double partial_[64] = {};
};

}  // namespace ration

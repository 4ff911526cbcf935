// Casts, ordered sums and norm blocks, compiled once per instruction set. Loops are plain: the
// compiler makes vector code of them, and without contraction and reordering the bits are those of
// the source. No inline library code here (see kernel_elements.hpp).

#include "device/host/arithmetic_kernels.hpp"
#include "device/host/kernel_elements.hpp"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace ration::RATION_LEVEL {
namespace {

// Elements of a block that waits in fp32 while its sources are added: 8 KiB, in the L1 cache.
constexpr std::size_t kBlock = 2048;

// ---- casts

template <class From, class To>
void cast_as(const void* from, void* to, std::size_t count) {
  const auto* source = static_cast<const typename From::Kept*>(from);
  auto* target = static_cast<typename To::Kept*>(to);
  RATION_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) target[i] = To::write(From::read(source[i]));
}

template <class From>
void cast_from(const void* from, void* to, DType to_type, std::size_t count) {
  switch (to_type) {
    case DType::f32:
      return cast_as<From, F32>(from, to, count);
    case DType::bf16:
      return cast_as<From, BF16>(from, to, count);
    case DType::f16:
      return cast_as<From, F16>(from, to, count);
    default:
      return;
  }
}

void cast(const void* from, DType from_type, void* to, DType to_type, std::size_t count) {
  if (count == 0) return;
  if (from_type == to_type) {
    if (from != to) __builtin_memmove(to, from, count * (from_type == DType::f32 ? 4 : 2));
    return;
  }
  switch (from_type) {
    case DType::f32:
      return cast_from<F32>(from, to, to_type, count);
    case DType::bf16:
      return cast_from<BF16>(from, to, to_type, count);
    case DType::f16:
      return cast_from<F16>(from, to, to_type, count);
    default:
      return;
  }
}

// ---- ordered sums

// An element on its way into a sum: rounded to the wire type, widened to fp32.
template <class Source, class Wire>
struct Entering {
  static float read(typename Source::Kept kept) {
    return Wire::read(Wire::write(Source::read(kept)));
  }
};
template <class Wire>
struct Entering<Wire, Wire> {
  static float read(typename Wire::Kept kept) { return Wire::read(kept); }
};
template <class Source>
struct Entering<Source, F32> {
  static float read(typename Source::Kept kept) { return Source::read(kept); }
};
template <>
struct Entering<F32, F32> {
  static float read(float kept) { return kept; }
};

// sums[i] = (first ? 0th : sums[i] + 0th) + 1st + ... + (kSources-1)th source, in this order; all
// pointers already at the block. With `add` the total is added to `to`.
template <class Source, class Wire, std::size_t kSources, bool first, bool add>
void sum_few(const void* const* sources, std::size_t begin, const float* sums, float* to,
             std::size_t count) {
  using Kept = typename Source::Kept;
  const Kept* source[kSources];
  for (std::size_t s = 0; s < kSources; ++s) {
    source[s] = static_cast<const Kept*>(sources[s]) + begin;
  }
  RATION_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    float sum = Entering<Source, Wire>::read(source[0][i]);
    if constexpr (!first) sum = sums[i] + sum;
#pragma GCC unroll 8
    for (std::size_t s = 1; s < kSources; ++s) {
      sum = sum + Entering<Source, Wire>::read(source[s][i]);
    }
    if constexpr (add) {
      to[i] = to[i] + sum;
    } else {
      to[i] = sum;
    }
  }
}

// Adds up any number of sources over a block into `sums`, at most four at a time.
template <class Source, class Wire>
void sum_block(const void* const* sources, std::size_t source_count, std::size_t begin, float* sums,
               std::size_t count) {
  std::size_t done = 0;
  if (source_count >= 4) {
    sum_few<Source, Wire, 4, true, false>(sources, begin, nullptr, sums, count);
    done = 4;
  } else if (source_count >= 2) {
    sum_few<Source, Wire, 2, true, false>(sources, begin, nullptr, sums, count);
    done = 2;
  } else {
    sum_few<Source, Wire, 1, true, false>(sources, begin, nullptr, sums, count);
    done = 1;
  }
  for (; done + 4 <= source_count; done += 4) {
    sum_few<Source, Wire, 4, false, false>(sources + done, begin, sums, sums, count);
  }
  for (; done < source_count; ++done) {
    sum_few<Source, Wire, 1, false, false>(sources + done, begin, sums, sums, count);
  }
}

// to[i] = sums[i] rounded to Wire, or that added to an fp32 `to`.
template <class Wire, class To, bool add>
void finish_block(const float* sums, typename To::Kept* to, std::size_t count) {
  RATION_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    const float sum = Entering<F32, Wire>::read(sums[i]);
    if constexpr (add) {
      to[i] = to[i] + sum;
    } else {
      to[i] = To::write(sum);
    }
  }
}

// Block by block: all sources of a block are read before `to` is written, so `to` may be one of
// them.
template <class Source, class Wire, class To, bool add>
void sum_through_blocks(const void* const* sources, std::size_t source_count, void* to,
                        std::size_t count) {
  alignas(64) float sums[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t block = count - begin < kBlock ? count - begin : kBlock;
    sum_block<Source, Wire>(sources, source_count, begin, sums, block);
    finish_block<Wire, To, add>(sums, static_cast<typename To::Kept*>(to) + begin, block);
  }
}

// Results larger than the caches are written past them: what is written is then not read first
// (measured: 0.75 of the time). Smaller ones are soon read again, by the norm and the update.
constexpr std::size_t kStreamed = std::size_t{2} << 20;

bool is_streamed(const void* const* sources, std::size_t source_count, const void* to,
                 std::size_t count) {
#if defined(__SSE__)
  if (count < kStreamed || reinterpret_cast<std::size_t>(to) % 16 != 0) return false;
  for (std::size_t s = 0; s < source_count; ++s) {
    if (sources[s] == to) return false;
  }
  return true;
#else
  return false;
#endif
}

void stream_block(const float* from, float* to, std::size_t count) {
  std::size_t i = 0;
#if defined(__SSE__)
  for (; i + 4 <= count; i += 4) _mm_stream_ps(to + i, _mm_load_ps(from + i));
#endif
  for (; i < count; ++i) to[i] = from[i];
}

void sum_streamed(const void* const* sources, std::size_t source_count, float* to,
                  std::size_t count) {
  alignas(64) float sums[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t block = count - begin < kBlock ? count - begin : kBlock;
    sum_block<F32, F32>(sources, source_count, begin, sums, block);
    stream_block(sums, to + begin, block);
  }
#if defined(__SSE__)
  _mm_sfence();
#endif
}

template <bool add>
void sum_f32(const void* const* sources, std::size_t source_count, void* to, std::size_t count) {
  auto* target = static_cast<float*>(to);
  if (!add && is_streamed(sources, source_count, to, count)) {
    return sum_streamed(sources, source_count, target, count);
  }
  switch (source_count) {
    case 1:
      return sum_few<F32, F32, 1, true, add>(sources, 0, nullptr, target, count);
    case 2:
      return sum_few<F32, F32, 2, true, add>(sources, 0, nullptr, target, count);
    case 3:
      return sum_few<F32, F32, 3, true, add>(sources, 0, nullptr, target, count);
    case 4:
      return sum_few<F32, F32, 4, true, add>(sources, 0, nullptr, target, count);
    case 8:
      return sum_few<F32, F32, 8, true, add>(sources, 0, nullptr, target, count);
    default:
      return sum_through_blocks<F32, F32, F32, add>(sources, source_count, to, count);
  }
}

template <class Source, class Wire>
void sum_to(const void* const* sources, std::size_t source_count, void* to, DType to_type, bool add,
            std::size_t count) {
  if (to_type != DType::f32) {
    sum_through_blocks<Source, Wire, Wire, false>(sources, source_count, to, count);
  } else if (add) {
    sum_through_blocks<Source, Wire, F32, true>(sources, source_count, to, count);
  } else {
    sum_through_blocks<Source, Wire, F32, false>(sources, source_count, to, count);
  }
}

template <class Source>
void sum_over(const void* const* sources, std::size_t source_count, DType wire_type, void* to,
              DType to_type, bool add, std::size_t count) {
  switch (wire_type) {
    case DType::bf16:
      return sum_to<Source, BF16>(sources, source_count, to, to_type, add, count);
    case DType::f16:
      return sum_to<Source, F16>(sources, source_count, to, to_type, add, count);
    default:
      break;
  }
  if (add) return sum_through_blocks<Source, F32, F32, true>(sources, source_count, to, count);
  return sum_through_blocks<Source, F32, F32, false>(sources, source_count, to, count);
}

void ordered_sum(const void* const* sources, std::size_t source_count, DType source_type,
                 DType wire_type, void* to, DType to_type, bool add, std::size_t count) {
  if (count == 0 || source_count == 0) return;
  if (source_type == DType::f32 && wire_type == DType::f32) {
    return add ? sum_f32<true>(sources, source_count, to, count)
               : sum_f32<false>(sources, source_count, to, count);
  }
  switch (source_type) {
    case DType::bf16:
      return sum_over<BF16>(sources, source_count, wire_type, to, to_type, add, count);
    case DType::f16:
      return sum_over<F16>(sources, source_count, wire_type, to, to_type, add, count);
    default:
      return sum_over<F32>(sources, source_count, wire_type, to, to_type, add, count);
  }
}

// ---- add

template <class From>
void add_as(const void* from, float* to, std::size_t count) {
  const auto* source = static_cast<const typename From::Kept*>(from);
  RATION_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) to[i] = to[i] + From::read(source[i]);
}

void add(const void* from, DType from_type, float* to, std::size_t count) {
  switch (from_type) {
    case DType::bf16:
      return add_as<BF16>(from, to, count);
    case DType::f16:
      return add_as<F16>(from, to, count);
    default:
      return add_as<F32>(from, to, count);
  }
}

// ---- norms

// The lanes are an inner loop of their own: with lanes[i % 16] no compiler sees the vector.
double squares(const float* values, std::size_t count) {
  constexpr std::size_t kLanes = 16;
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) {
    const double value = values[i];
    lanes[lane] += value * value;
  }
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

double norm_block(const void* values, DType type, std::size_t count) {
  if (type == DType::f32) return squares(static_cast<const float*>(values), count);
  alignas(64) float widened[kNormBlock];
  cast(values, type, widened, DType::f32, count);
  return squares(widened, count);
}

#define RATION_QUOTE_(text) #text
#define RATION_QUOTE(text) RATION_QUOTE_(text)

}  // namespace

extern const Arithmetic kArithmetic = {RATION_QUOTE(RATION_LEVEL), cast, ordered_sum, add,
                                       norm_block};

}  // namespace ration::RATION_LEVEL

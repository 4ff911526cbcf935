#pragma once
// One element at a time: conversions between f32, bf16 and f16 for the sources that are compiled
// once per instruction set (*.kernel.cpp), and for those alone. They give the bits of
// ration/dtype.hpp, but without branches, so that loops over them become vector code. Everything
// has internal linkage: an inline function shared between instruction sets would be merged by the
// linker, and a CPU without AVX would meet AVX code.

#include <cstddef>
#include <cstdint>

#ifdef __FAST_MATH__
#error "-ffast-math would change the bits that the library promises"
#endif

// The iterations of a loop do not depend on each other, though its pointers may be equal.
#if defined(__clang__)
#define RATION_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define RATION_INDEPENDENT _Pragma("GCC ivdep")
#else
#define RATION_INDEPENDENT
#endif

namespace ration {
namespace {

[[maybe_unused]] inline std::uint32_t bits_of(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}
[[maybe_unused]] inline float float_of(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

[[maybe_unused]] inline float from_bf16(std::uint16_t bits) {
  return float_of(std::uint32_t{bits} << 16);
}

[[maybe_unused]] inline std::uint16_t to_bf16(float value) {
  const std::uint32_t b = bits_of(value);
  const std::uint32_t rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
  const std::uint32_t nan = (b >> 16) | 0x40u;
  return static_cast<std::uint16_t>((b & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

// A denormal f16 is its mantissa times 2^-24, which fp32 represents as a normal number.
[[maybe_unused]] inline float from_f16(std::uint16_t bits) {
  const std::uint32_t magnitude = bits & 0x7fffu;
  const std::uint32_t sign = (std::uint32_t{bits} & 0x8000u) << 16;
  const std::uint32_t normal = (magnitude << 13) + (112u << 23);
  const std::uint32_t special = (magnitude << 13) | 0x7f800000u;
  const std::uint32_t denormal =
      bits_of(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f);
  const std::uint32_t finite = magnitude < 0x400u ? denormal : normal;
  return float_of(sign | (magnitude >= 0x7c00u ? special : finite));
}

// The last bit of fp32 numbers in [0.5, 1) is worth 2^-24, as is that of denormal f16: adding 0.5
// rounds to nearest even at the right place.
[[maybe_unused]] inline std::uint16_t to_f16(float value) {
  const std::uint32_t b = bits_of(value);
  const std::uint32_t sign = (b >> 16) & 0x8000u;
  const std::uint32_t magnitude = b & 0x7fffffffu;
  const std::uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t denormal = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t small = magnitude < 0x38800000u ? denormal : normal;
  const std::uint32_t large = magnitude > 0x7f800000u ? nan : 0x7c00u;
  return static_cast<std::uint16_t>(sign | (magnitude >= 0x47800000u ? large : small));
}

// An element type as kernels see it: how it is kept, read and written.
struct F32 {
  using Kept = float;
  static float read(float value) { return value; }
  static float write(float value) { return value; }
};
struct BF16 {
  using Kept = std::uint16_t;
  static float read(std::uint16_t bits) { return from_bf16(bits); }
  static std::uint16_t write(float value) { return to_bf16(value); }
};
struct F16 {
  using Kept = std::uint16_t;
  static float read(std::uint16_t bits) { return from_f16(bits); }
  static std::uint16_t write(float value) { return to_f16(value); }
};

}  // namespace
}  // namespace ration

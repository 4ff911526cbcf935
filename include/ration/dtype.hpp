#pragma once
// Element types: what a tensor's elements are, and the two 16-bit floating-point types C++20 lacks.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ration {

/// Element type of a tensor. Parameters and gradients are f32, bf16 or f16; the others travel in
/// collectives only.
enum class DType : std::uint8_t { f32, bf16, f16, f64, i64, u8 };

/// Bytes of one element.
constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::f32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr bool is_parameter_type(DType type) {
  return type == DType::f32 || type == DType::bf16 || type == DType::f16;
}

/// "f32", "bf16", ...: the names used in flags and messages.
constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::f64:
      return "f64";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
  }
  return "?";
}

/// bfloat16: the upper half of a float32. Conversion rounds to nearest, ties to even; NaN stays
/// NaN.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  explicit bf16(float value) {
    const auto b = std::bit_cast<std::uint32_t>(value);
    bits = (b & 0x7fffffffu) > 0x7f800000u
               ? static_cast<std::uint16_t>((b >> 16) | 0x40u)
               : static_cast<std::uint16_t>((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
  friend bool operator==(bf16, bf16) = default;  // compares bits
};

/// IEEE binary16. Conversion rounds to nearest, ties to even; overflow becomes infinity; NaN stays
/// NaN.
struct f16 {
  std::uint16_t bits = 0;

  f16() = default;
  explicit f16(float value);
  explicit operator float() const;
  friend bool operator==(f16, f16) = default;  // compares bits
};

inline f16::f16(float value) {
  const auto b = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (b >> 16) & 0x8000u;
  const std::uint32_t magnitude = b & 0x7fffffffu;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {  // 65536 and above
    half = 0x7c00u;
  } else if (magnitude >=
             0x38800000u) {  // normal; the carry of rounding may reach infinity, rightly
    half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else if (magnitude >= 0x33000000u) {  // denormal
    const std::uint32_t exponent = magnitude >> 23;
    const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const std::uint32_t shift = 126u - exponent;
    const std::uint32_t rest = mantissa & ((1u << shift) - 1u);
    const std::uint32_t middle = 1u << (shift - 1u);
    half = mantissa >> shift;
    half += (rest > middle || (rest == middle && (half & 1u))) ? 1u : 0u;
  }
  bits = static_cast<std::uint16_t>(sign | half);
}

inline f16::operator float() const {
  const std::uint32_t sign = (std::uint32_t{bits} & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  std::uint32_t e = 113;
  while ((mantissa & 0x400u) == 0) {
    mantissa <<= 1;
    --e;
  }
  return std::bit_cast<float>(sign | (e << 23) | ((mantissa & 0x3ffu) << 13));
}

/// The DType of a C++ type. Specialise it for your own 16-bit type of the same layout
/// (Eigen::bfloat16, ...).
template <class T>
struct dtype_of;
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of<f16> {
  static constexpr DType value = DType::f16;
};
template <>
struct dtype_of<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct dtype_of<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct dtype_of<std::uint8_t> {
  static constexpr DType value = DType::u8;
};

}  // namespace ration

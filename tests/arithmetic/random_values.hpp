#pragma once
// Inputs for arithmetic tests: every kind of float, at any alignment.

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include <ration/dtype.hpp>

namespace ration::testing {

/// Mostly ordinary numbers, with denormals, zeros and large ones among them.
inline std::vector<float> ordinary(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const auto kind = static_cast<std::uint32_t>(random());
    const auto bits = static_cast<std::uint32_t>(random());
    const std::uint32_t exponent = kind % 16 == 0 ? (kind >> 4) % 140 : 110 + (kind >> 4) % 20;
    value = std::bit_cast<float>((bits & 0x807fffffu) | exponent << 23);
  }
  return values;
}

/// `values` as bytes of another element type, by the conversions of ration/dtype.hpp.
inline std::vector<std::byte> as_type(const std::vector<float>& values, DType type) {
  std::vector<std::byte> bytes(values.size() * size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = values[i];
    if (type == DType::f32) {
      reinterpret_cast<float*>(bytes.data())[i] = value;
    } else if (type == DType::bf16) {
      reinterpret_cast<std::uint16_t*>(bytes.data())[i] = bf16(value).bits;
    } else {
      reinterpret_cast<std::uint16_t*>(bytes.data())[i] = f16(value).bits;
    }
  }
  return bytes;
}

inline float element(const void* values, DType type, std::size_t i) {
  if (type == DType::f32) return static_cast<const float*>(values)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(values)[i];
  if (type == DType::bf16) return std::bit_cast<float>(std::uint32_t{bits} << 16);
  f16 half;
  half.bits = bits;
  return static_cast<float>(half);
}

inline float rounded(float value, DType type) {
  if (type == DType::bf16) return static_cast<float>(bf16(value));
  if (type == DType::f16) return static_cast<float>(f16(value));
  return value;
}

inline constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};

}  // namespace ration::testing

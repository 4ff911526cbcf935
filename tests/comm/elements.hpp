#pragma once
// Typed buffers of made-up numbers, and the plain oracle of a reduce.

#include <cstring>
#include <random>
#include <vector>

#include <ration/dtype.hpp>

namespace ration {

/// `count` elements of `type`, known by their bytes.
struct Buffer {
  DType type = DType::f32;
  std::size_t count = 0;
  std::vector<std::byte> bytes;

  Buffer(DType t, std::size_t n) : type(t), count(n), bytes(n * size_of(t)) {}
  void* data() { return bytes.data(); }
  [[nodiscard]] const void* data() const { return bytes.data(); }
  void* at(std::size_t i) { return bytes.data() + i * size_of(type); }
  [[nodiscard]] const void* at(std::size_t i) const { return bytes.data() + i * size_of(type); }

  template <class T>
  [[nodiscard]] T get(std::size_t i) const {
    T value;
    std::memcpy(&value, at(i), sizeof value);
    return value;
  }
  template <class T>
  void set(std::size_t i, T value) {
    std::memcpy(at(i), &value, sizeof value);
  }

  [[nodiscard]] float as_float(std::size_t i) const {
    if (type == DType::bf16) return static_cast<float>(get<bf16>(i));
    if (type == DType::f16) return static_cast<float>(get<f16>(i));
    return get<float>(i);
  }
  void set_float(std::size_t i, float value) {
    if (type == DType::bf16) return set(i, bf16(value));
    if (type == DType::f16) return set(i, f16(value));
    set(i, value);
  }

  friend bool operator==(const Buffer& a, const Buffer& b) { return a.bytes == b.bytes; }
};

/// Different on each rank; sums of them depend on the order.
inline Buffer numbers(DType type, std::size_t count, int rank, unsigned seed = 0) {
  Buffer buffer(type, count);
  std::mt19937 random(seed * 1000 + static_cast<unsigned>(rank));
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < count; ++i) {
    const float value = normal(random) * (i % 3 == 0 ? 1e3F : 1.0F);
    if (type == DType::f64) {
      buffer.set(i, static_cast<double>(value));
    } else if (type == DType::i64) {
      buffer.set(i, static_cast<std::int64_t>(value * 1e6F));
    } else if (type == DType::u8) {
      buffer.set(i, static_cast<std::uint8_t>(random()));
    } else {
      buffer.set_float(i, value);
    }
  }
  return buffer;
}

/// What a reduce promises: each rank's element rounded to `wire` and widened, summed in fp32 in
/// rank order, rounded once; f64 and i64 in their own arithmetic.
inline Buffer ordered_sum(const std::vector<Buffer>& inputs, DType wire) {
  const std::size_t count = inputs[0].count;
  Buffer result(wire, count);
  for (std::size_t i = 0; i < count; ++i) {
    if (wire == DType::f64) {
      double sum = inputs[0].get<double>(i);
      for (std::size_t r = 1; r < inputs.size(); ++r) sum += inputs[r].get<double>(i);
      result.set(i, sum);
    } else if (wire == DType::i64) {
      std::int64_t sum = 0;
      for (const Buffer& input : inputs) sum += input.get<std::int64_t>(i);
      result.set(i, sum);
    } else {
      Buffer rounded(wire, 1);
      float sum = 0;
      for (std::size_t r = 0; r < inputs.size(); ++r) {
        rounded.set_float(0, inputs[r].as_float(i));
        sum = r == 0 ? rounded.as_float(0) : sum + rounded.as_float(0);
      }
      result.set_float(i, sum);
    }
  }
  return result;
}

}  // namespace ration

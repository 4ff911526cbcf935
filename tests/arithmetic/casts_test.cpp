// Casts, at every level of instruction sets, against the scalar conversions of ration/dtype.hpp.

#include <gtest/gtest.h>

#include <cstring>

#include "device/host/arithmetic.hpp"
#include "random_values.hpp"

namespace ration {
namespace {

using testing::as_type;
using testing::kTypes;
using testing::ordinary;

TEST(Casts, EverySixteenBitPatternWidensAsTheScalarTypesDo) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<std::uint32_t> out(all.size());
  for (const Arithmetic* level : arithmetic_levels()) {
    level->cast(all.data(), DType::bf16, out.data(), DType::f32, all.size());
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(out[i], i << 16) << level->name;
    level->cast(all.data(), DType::f16, out.data(), DType::f32, all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      f16 half;
      half.bits = all[i];
      ASSERT_EQ(out[i], std::bit_cast<std::uint32_t>(static_cast<float>(half)))
          << level->name << " pattern " << i;
    }
  }
}

TEST(Casts, FloatsNarrowAsTheScalarTypesDo) {
  // A stride prime to 2^32 visits all exponents, and lower bits of every kind; the ties and their
  // neighbours, where rounding is decided, are visited besides.
  std::vector<std::uint32_t> bits;
  for (std::uint64_t b = 0; b < 1ull << 32; b += 4099)
    bits.push_back(static_cast<std::uint32_t>(b));
  for (std::uint32_t upper = 0; upper < 65536; upper += 3) {
    for (const std::uint32_t lower : {0x0u, 0x1u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u,
                                      0x3001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      bits.push_back(upper << 16 | lower);
    }
  }
  std::vector<std::uint16_t> out(bits.size());
  for (const Arithmetic* level : arithmetic_levels()) {
    level->cast(bits.data(), DType::f32, out.data(), DType::bf16, bits.size());
    for (std::size_t i = 0; i < bits.size(); ++i) {
      ASSERT_EQ(out[i], bf16(std::bit_cast<float>(bits[i])).bits) << level->name << " " << bits[i];
    }
    level->cast(bits.data(), DType::f32, out.data(), DType::f16, bits.size());
    for (std::size_t i = 0; i < bits.size(); ++i) {
      ASSERT_EQ(out[i], f16(std::bit_cast<float>(bits[i])).bits) << level->name << " " << bits[i];
    }
  }
}

TEST(Casts, AnySizeAndAlignmentBetweenAnyTypesWritesNothingElse) {
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      for (const std::size_t count : {0u, 1u, 2u, 15u, 16u, 17u, 63u, 65u, 1000u}) {
        for (const std::size_t offset : {0u, 1u, 7u}) {
          const std::vector<std::byte> source = as_type(ordinary(count + offset, 1), from);
          std::vector<float> expected(count);
          for (std::size_t i = 0; i < count; ++i) {
            expected[i] = testing::rounded(testing::element(source.data(), from, i + offset), to);
          }
          const std::vector<std::byte> expected_bytes = as_type(expected, to);
          for (const Arithmetic* level : arithmetic_levels()) {
            std::vector<std::byte> out((count + offset + 1) * size_of(to), std::byte{0x5a});
            level->cast(source.data() + offset * size_of(from), from,
                        out.data() + offset * size_of(to), to, count);
            ASSERT_TRUE(std::equal(expected_bytes.begin(), expected_bytes.end(),
                                   out.begin() + static_cast<std::ptrdiff_t>(offset * size_of(to))))
                << level->name << " " << name_of(from) << " " << name_of(to) << " " << count;
            for (std::size_t i = 0; i < offset * size_of(to); ++i) {
              ASSERT_EQ(out[i], std::byte{0x5a});
            }
            for (std::size_t i = (offset + count) * size_of(to); i < out.size(); ++i) {
              ASSERT_EQ(out[i], std::byte{0x5a});
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ration

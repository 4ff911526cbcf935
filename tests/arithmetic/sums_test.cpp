// Ordered sums: the arithmetic of a reduce, element by element, at every level.

#include <gtest/gtest.h>

#include "device/host/arithmetic.hpp"
#include "process_wide_flush.hpp"
#include "random_values.hpp"

namespace ration {
namespace {

using testing::as_type;
using testing::element;
using testing::kTypes;
using testing::ordinary;
using testing::rounded;

struct Sources {
  Sources(std::size_t number, std::size_t count, std::size_t offset, DType type) : type(type) {
    for (std::size_t s = 0; s < number; ++s) {
      arrays.push_back(as_type(ordinary(count + offset, static_cast<std::uint32_t>(s)), type));
    }
    for (const auto& array : arrays) pointers.push_back(array.data() + offset * size_of(type));
  }
  DType type;
  std::vector<std::vector<std::byte>> arrays;
  std::vector<const void*> pointers;
};

// The definition, literally.
float one_sum(const Sources& sources, DType wire, std::size_t i) {
  float sum = rounded(element(sources.pointers[0], sources.type, i), wire);
  for (std::size_t s = 1; s < sources.pointers.size(); ++s) {
    sum += rounded(element(sources.pointers[s], sources.type, i), wire);
  }
  return rounded(sum, wire);
}

void expect_ordered(std::size_t number, std::size_t count, std::size_t offset, DType source_type,
                    DType wire, DType to_type, bool add) {
  const Sources sources(number, count, offset, source_type);
  const std::vector<float> before = ordinary(count, 99);
  for (const Arithmetic* level : arithmetic_levels()) {
    std::vector<std::byte> to = as_type(before, to_type);
    level->ordered_sum(sources.pointers.data(), number, source_type, wire, to.data(), to_type, add,
                       count);
    for (std::size_t i = 0; i < count; ++i) {
      const float sum = one_sum(sources, wire, i);
      const float expected = add ? before[i] + sum : sum;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(element(to.data(), to_type, i)),
                std::bit_cast<std::uint32_t>(expected))
          << level->name << ": " << number << " sources of " << name_of(source_type) << " over "
          << name_of(wire) << " to " << name_of(to_type) << ", add " << add << ", element " << i;
    }
  }
}

TEST(OrderedSum, AddsInSourceOrderForEveryNumberOfSources) {
  for (std::size_t number = 1; number <= 19; ++number) {
    for (const bool add : {false, true}) {
      expect_ordered(number, 1037, 1, DType::f32, DType::f32, DType::f32, add);
      expect_ordered(number, 2500, 1, DType::bf16, DType::bf16, DType::f32, add);
    }
  }
}

TEST(OrderedSum, RoundsToTheWireTypeOnTheWayInAndOnceOnTheWayOut) {
  for (const DType source : kTypes) {
    for (const DType wire : kTypes) {
      for (const std::size_t number : {1u, 2u, 3u, 4u, 8u, 11u}) {
        expect_ordered(number, 2049, 3, source, wire, wire, false);
        expect_ordered(number, 2049, 0, source, wire, DType::f32, false);
        expect_ordered(number, 2049, 3, source, wire, DType::f32, true);
      }
    }
  }
}

// Large results go past the caches by another path.
TEST(OrderedSum, IsTheSameForResultsLargerThanTheCaches) {
  for (const std::size_t number : {2u, 5u}) {
    expect_ordered(number, (2u << 20) + 2048 + 37, 1, DType::f32, DType::f32, DType::f32, false);
  }
}

TEST(OrderedSum, OddSizesAreOrdinary) {
  for (const std::size_t count : {0u, 1u, 2u, 3u, 15u, 17u, 31u, 33u, 2047u, 2048u, 4097u}) {
    expect_ordered(3, count, 1, DType::f32, DType::f32, DType::f32, false);
    expect_ordered(5, count, 1, DType::f32, DType::bf16, DType::bf16, false);
  }
}

TEST(OrderedSum, MayWriteOverAnyOfItsSources) {
  for (const DType type : kTypes) {
    for (const std::size_t number : {2u, 3u, 4u, 6u, 8u}) {
      for (std::size_t target = 0; target < number; ++target) {
        const Sources reference(number, 5000, 0, type);
        for (const Arithmetic* level : arithmetic_levels()) {
          Sources sources(number, 5000, 0, type);
          level->ordered_sum(sources.pointers.data(), number, type, type,
                             sources.arrays[target].data(), type, false, 5000);
          for (std::size_t i = 0; i < 5000; ++i) {
            ASSERT_EQ(element(sources.arrays[target].data(), type, i), one_sum(reference, type, i))
                << level->name << " " << name_of(type) << " " << i;
          }
        }
      }
    }
  }
}

TEST(OrderedSum, SixtyFourMicroStepsOfBf16AddUpExactlyInFp32) {
  const std::vector<std::byte> gradient = as_type({1.0078125f}, DType::bf16);
  const void* source = gradient.data();
  float sum = 0.0f;
  for (int i = 0; i < 64; ++i) {
    arithmetic().ordered_sum(&source, 1, DType::bf16, DType::f32, &sum, DType::f32, true, 1);
  }
  EXPECT_EQ(sum, 64.5f);
}

TEST(OrderedSum, KeepsDenormalsInAProcessThatFlushesThem) {
  const std::vector<float> a(100, 1e-40f);
  const std::vector<float> b(100, 2e-40f);
  const void* sources[] = {a.data(), b.data()};
  for (const Arithmetic* level : arithmetic_levels()) {
    std::vector<float> to(100);
    std::vector<float> added(100, 1e-40f);
    const std::vector<std::byte> half = as_type(std::vector<float>(100, 6e-8f), DType::f16);
    std::vector<float> widened(100);
    double norm = 0;
    {
      const testing::ProcessWideFlush flush;
      level->ordered_sum(sources, 2, DType::f32, DType::f32, to.data(), DType::f32, false, 100);
      level->add(a.data(), DType::f32, added.data(), 100);
      level->cast(half.data(), DType::f16, widened.data(), DType::f32, 100);
      norm = level->norm_block(a.data(), DType::f32, 100);
    }
    EXPECT_EQ(to, std::vector<float>(100, 1e-40f + 2e-40f)) << level->name;
    EXPECT_EQ(added, std::vector<float>(100, 1e-40f + 1e-40f)) << level->name;
    EXPECT_EQ(widened, std::vector<float>(100, 0x1p-24f)) << level->name;
    EXPECT_NEAR(norm, 100 * double{1e-40f} * double{1e-40f}, 1e-90) << level->name;
  }
}

TEST(Add, AddsEveryTypeToFp32) {
  for (const DType type : kTypes) {
    const std::vector<std::byte> from = as_type(ordinary(1001, 5), type);
    const std::vector<float> before = ordinary(1000, 6);
    for (const Arithmetic* level : arithmetic_levels()) {
      std::vector<float> to = before;
      level->add(from.data() + size_of(type), type, to.data(), 1000);
      for (std::size_t i = 0; i < 1000; ++i) {
        ASSERT_EQ(to[i], before[i] + element(from.data(), type, i + 1)) << level->name;
      }
    }
  }
}

}  // namespace
}  // namespace ration

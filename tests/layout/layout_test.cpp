// Parameter -> unit -> flat -> shard.

#include "layout/layout.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "support/throws.hpp"

namespace ration::test {
namespace {

/// A unit per list of sizes; every third parameter is bf16, every fourth frozen.
Layout layout_of(int world, const std::vector<std::vector<std::int64_t>>& units) {
  Layout layout;
  layout.world = world;
  for (const std::vector<std::int64_t>& sizes : units) {
    const int u = static_cast<int>(layout.units.size());
    UnitInfo& unit = layout.units.emplace_back();
    unit.name = fmt::format("u{}", u);
    for (const std::int64_t size : sizes) {
      const int p = static_cast<int>(layout.parameters.size());
      layout.parameters.push_back({.name = fmt::format("p{}", p),
                                   .shape = {size},
                                   .dtype = p % 3 == 2 ? DType::bf16 : DType::f32,
                                   .trainable = p % 4 != 3,
                                   .unit = u});
      unit.parameters.push_back(p);
    }
  }
  lay_out(layout);
  return layout;
}

std::vector<std::vector<std::int64_t>> sizes_around(std::int64_t n) {
  return {{0, 1, n - 1, n, n + 1},          {1},     {0}, {}, {n - 1},
          {64 * n, 64 * n - 1, 64 * n + 1}, {63, 65}};
}

TEST(Layout, EveryElementHasOneOwner) {
  for (int world = 1; world <= 9; ++world) {
    const Layout layout = layout_of(world, sizes_around(world));
    std::vector<std::vector<int>> owners;
    for (const ParameterInfo& p : layout.parameters)
      owners.emplace_back(static_cast<std::size_t>(p.count), 0);
    for (const FlatInfo& flat : layout.flats) {
      for (int rank = 0; rank < world; ++rank) {
        for (const Piece& piece :
             pieces(layout, flat, flat.shard * rank, flat.shard * (rank + 1))) {
          EXPECT_GT(piece.count, 0);
          EXPECT_EQ(layout.parameters[piece.parameter].offset + piece.first, piece.flat_first);
          for (std::int64_t i = 0; i < piece.count; ++i)
            ++owners[piece.parameter].at(static_cast<std::size_t>(piece.first + i));
        }
      }
    }
    for (std::size_t p = 0; p < owners.size(); ++p)
      EXPECT_THAT(owners[p], testing::Each(1)) << "world " << world << ", parameter " << p;
  }
}

TEST(Layout, ParametersAndShardsBeginAtMultiplesOf64Elements) {
  for (int world = 1; world <= 9; ++world) {
    const Layout layout = layout_of(world, sizes_around(world));
    for (const ParameterInfo& p : layout.parameters) EXPECT_EQ(p.offset % 64, 0) << p.name;
    for (const FlatInfo& flat : layout.flats) {
      EXPECT_EQ(flat.shard % 64, 0);
      EXPECT_GE(layout.padded(flat), flat.length);
      EXPECT_LT(layout.padded(flat) - flat.length, 64 * world);
    }
  }
}

TEST(Layout, AFlatIsOfOneUnitOneTypeAndEitherTrainableOrFrozen) {
  const Layout layout = layout_of(3, {{5, 6, 7, 8, 9, 10, 11, 12}, {5, 6, 7}});
  std::vector<int> seen;
  for (const FlatInfo& flat : layout.flats) {
    for (const int p : flat.parameters) {
      seen.push_back(p);
      EXPECT_EQ(layout.parameters[p].unit, flat.unit);
      EXPECT_EQ(layout.parameters[p].dtype, flat.dtype);
      EXPECT_EQ(layout.parameters[p].trainable, flat.trainable);
    }
  }
  std::sort(seen.begin(), seen.end());
  std::vector<int> all(layout.parameters.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(seen, all);
  for (std::size_t a = 0; a < layout.flats.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      EXPECT_FALSE(layout.flats[a].unit == layout.flats[b].unit &&
                   layout.flats[a].dtype == layout.flats[b].dtype &&
                   layout.flats[a].trainable == layout.flats[b].trainable);
    }
  }
}

TEST(Layout, OffsetsAndLengthsDoNotDependOnTheWorld) {
  const Layout one = layout_of(1, sizes_around(7));
  for (int world = 2; world <= 9; ++world) {
    const Layout layout = layout_of(world, sizes_around(7));
    for (std::size_t p = 0; p < one.parameters.size(); ++p)
      EXPECT_EQ(layout.parameters[p].offset, one.parameters[p].offset);
    for (std::size_t f = 0; f < one.flats.size(); ++f)
      EXPECT_EQ(layout.flats[f].length, one.flats[f].length);
  }
}

TEST(Layout, MoreThanTwoToThe31Elements) {
  constexpr std::int64_t kMany = (std::int64_t{1} << 31) + 3;
  for (int world = 1; world <= 9; ++world) {
    const Layout layout = layout_of(world, {{kMany, kMany, kMany}});
    EXPECT_EQ(layout.elements(), 3 * kMany);
    EXPECT_EQ(layout.parameters[1].offset, (std::int64_t{1} << 31) + 64);
    const FlatInfo& flat = layout.flats.front();
    std::int64_t owned = 0;
    std::int64_t next = 0;  // of the second parameter
    for (int rank = 0; rank < world; ++rank) {
      for (const Piece& piece : pieces(layout, flat, flat.shard * rank, flat.shard * (rank + 1))) {
        owned += piece.count;
        if (piece.parameter != 1) continue;
        EXPECT_EQ(piece.first, next);
        next += piece.count;
      }
    }
    EXPECT_EQ(owned, 2 * kMany) << "the flat of the two f32 parameters";
    EXPECT_EQ(next, kMany);
  }
}

TEST(Layout, PaddingIsInNoPiece) {
  const Layout layout = layout_of(1, {{3, 5}});
  const FlatInfo& flat = layout.flats.front();
  EXPECT_TRUE(pieces(layout, flat, 3, 64).empty());
  EXPECT_TRUE(pieces(layout, flat, 69, 128).empty());
  const auto both = pieces(layout, flat, 2, 66);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].first, 2);
  EXPECT_EQ(both[0].count, 1);
  EXPECT_EQ(both[1].flat_first, 64);
  EXPECT_EQ(both[1].count, 2);
}

TEST(Layout, RefusesSizesThatMakeNoSense) {
  EXPECT_THAT(thrown<InvalidArgument>([] {
                count_elements("w", {4, -1});
              }),
              testing::AllOf(testing::HasSubstr("\"w\""), testing::HasSubstr("size -1"),
                             testing::HasSubstr("[4, -1]")));
  EXPECT_THAT(thrown<InvalidArgument>([] {
                count_elements("w", {std::int64_t{1} << 40, std::int64_t{1} << 40});
              }),
              testing::AllOf(testing::HasSubstr("\"w\""), testing::HasSubstr("1099511627776")));
  EXPECT_EQ(count_elements("scalar", {}), 1);
  EXPECT_EQ(count_elements("none", {7, 0}), 0);
}

}  // namespace
}  // namespace ration::test

// Walks over tiles, most of which are elsewhere.

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "aligned.hpp"
#include "offload/tile_store.hpp"
#include "support/folder.hpp"

namespace ration::test {
namespace {

using offload::BlockDevice;
using offload::padded;
using offload::TileStore;
using offload::Transfer;
using Use = TileStore::Use;
using Order = TileStore::Order;

/// Carries out a transfer only when it is waited for, as late as may be; fails one that is chosen.
class Late final : public BlockDevice {
 public:
  Late(std::unique_ptr<BlockDevice> inner, std::size_t tickets, int* fail_after)
      : inner_(std::move(inner)), waiting_(tickets), fail_after_(fail_after) {}
  void submit(std::size_t ticket, const Transfer& transfer) override {
    ASSERT_FALSE(waiting_[ticket]) << "ticket " << ticket << " is under way";
    waiting_[ticket] = transfer;
  }
  void wait(std::size_t ticket) override {
    const auto transfer = std::exchange(waiting_[ticket], std::nullopt);
    if (!transfer) return;
    if (fail_after_ && (*fail_after_)-- == 0) throw IoError("broken");
    inner_->submit(ticket, *transfer);
    inner_->wait(ticket);
  }
  bool done(std::size_t ticket) override { return !waiting_[ticket]; }
  [[nodiscard]] std::string name() const override { return "late"; }

 private:
  std::unique_ptr<BlockDevice> inner_;
  std::vector<std::optional<Transfer>> waiting_;
  int* fail_after_;
};

/// A store beside the same bytes in plain memory. The first walk fills it.
class Checked {
 public:
  Checked(std::vector<std::size_t> sizes, std::size_t slots, bool late = false,
          int* fail_after = nullptr)
      : sizes_(std::move(sizes)), memory_(slots * largest()) {
    std::uint64_t bytes = 0;
    for (const std::size_t size : sizes_) {
      bytes += padded(size);
      expected_.emplace_back(size);
    }
    auto device =
        offload::make_device({.folders = {folder_.path()}, .bytes = bytes, .tickets = slots});
    if (late || fail_after) device = std::make_unique<Late>(std::move(device), slots, fail_after);
    store_ = std::make_unique<TileStore>(sizes_, slots, memory_.data(), std::move(device));
  }

  void walk(Use use, Order order) {
    std::vector<std::size_t> seen;
    store_->walk(use, order, [&](std::size_t tile, std::byte* bytes) {
      seen.push_back(tile);
      check_and_change(tile, bytes, use);
    });
    backward_ = order == Order::alternating && !backward_;
    std::vector<std::size_t> all(sizes_.size());
    std::iota(all.begin(), all.end(), 0);
    if (backward_) std::reverse(all.begin(), all.end());
    EXPECT_EQ(seen, all);
  }
  /// One tile, out of any order.
  void hold(std::size_t tile, Use use) { check_and_change(tile, store_->hold(tile, use), use); }
  TileStore& store() { return *store_; }

 private:
  void check_and_change(std::size_t tile, std::byte* bytes, Use use) {
    std::vector<std::byte>& expected = expected_[tile];
    if (use != Use::fill) {
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), bytes)) << "tile " << tile;
    }
    if (use == Use::read) return;
    for (std::byte& byte : expected) byte = static_cast<std::byte>(random_());
    std::copy(expected.begin(), expected.end(), bytes);
  }
  [[nodiscard]] std::size_t largest() const {
    std::size_t most = 0;
    for (const std::size_t size : sizes_) most = std::max(most, padded(size));
    return most;
  }
  const Folder folder_;
  const std::vector<std::size_t> sizes_;
  Aligned memory_;
  std::vector<std::vector<std::byte>> expected_;
  std::unique_ptr<TileStore> store_;
  std::mt19937 random_{5};
  bool backward_ = false;
};

const std::vector<std::size_t> kSizes = {4096, 1, 10000, 8192, 0, 4097, 12288, 3, 9000, 70000, 64};

/// A filled store with each number of slots, its transfers carried out at once or late.
void with_every_ring(const std::function<void(Checked&, std::mt19937&)>& body) {
  for (std::size_t slots = TileStore::kLeastSlots; slots <= kSizes.size() + 2; ++slots) {
    for (const bool late : {false, true}) {
      SCOPED_TRACE(testing::Message() << slots << " slots, " << (late ? "late" : "at once"));
      Checked checked(kSizes, slots, late);
      std::mt19937 random(static_cast<unsigned>(slots));
      checked.walk(Use::fill, Order::forward);
      body(checked, random);
    }
  }
}

TEST(TileStore, EveryByteComesBackInAnyWalk) {
  with_every_ring([](Checked& checked, std::mt19937& random) {
    for (int round = 0; round < 40; ++round) {
      const Use use = random() % 3 == 0 ? Use::read : random() % 5 == 0 ? Use::fill : Use::update;
      checked.walk(use, random() % 4 == 0 ? Order::forward : Order::alternating);
    }
  });
}

// In order, back and forth, at random, and between walks.
TEST(TileStore, ATileMayBeHeld) {
  with_every_ring([](Checked& checked, std::mt19937& random) {
    for (int round = 0; round < 30; ++round) {
      const Use use = round % 3 == 0 ? Use::read : Use::update;
      for (std::size_t i = 0; i < kSizes.size(); ++i) checked.hold(i, use);
      for (int i = 0; i < 15; ++i) {
        checked.hold(random() % kSizes.size(), random() % 3 == 0   ? Use::fill
                                               : random() % 2 == 0 ? Use::read
                                                                   : Use::update);
      }
      if (round % 2 == 0) checked.walk(Use::update, Order::alternating);
    }
  });
}

TEST(TileStore, AnyNumberOfTiles) {
  for (std::size_t tiles = 0; tiles < 9; ++tiles) {
    Checked checked(std::vector<std::size_t>(tiles, 5000), TileStore::kLeastSlots);
    checked.walk(Use::fill, Order::forward);
    for (int round = 0; round < 5; ++round) checked.walk(Use::update, Order::alternating);
    EXPECT_EQ(checked.store().tiles(), tiles);
  }
}

TEST(TileStore, WhatFitsIsNeverMoved) {
  Checked checked(kSizes, kSizes.size());
  checked.walk(Use::fill, Order::forward);
  for (int round = 0; round < 3; ++round) checked.walk(Use::update, Order::alternating);
  EXPECT_EQ(checked.store().moved_bytes(), 0);
}

// A walk that turns around finds in memory what the one before has visited last: of T tiles and S
// slots, T - S are read and as many written.
TEST(TileStore, ATurnSparesWhatIsStillInMemory) {
  constexpr std::size_t kTiles = 20;
  constexpr std::size_t kTile = 8192;
  for (const std::size_t slots : {3u, 8u, 19u}) {
    Checked checked(std::vector<std::size_t>(kTiles, kTile), slots);
    checked.walk(Use::fill, Order::forward);
    for (int round = 0; round < 4; ++round) {
      const std::uint64_t before = checked.store().moved_bytes();
      checked.walk(Use::update, Order::alternating);
      EXPECT_EQ(checked.store().moved_bytes() - before, 2 * (kTiles - slots) * kTile);
    }
  }
}

// A tile that is only read is not written.
TEST(TileStore, ReadingWritesNothing) {
  constexpr std::size_t kTiles = 20;
  constexpr std::size_t kTile = 8192;
  Checked checked(std::vector<std::size_t>(kTiles, kTile), 4);
  checked.walk(Use::fill, Order::forward);
  checked.walk(Use::read, Order::alternating);
  const std::uint64_t before = checked.store().moved_bytes();
  checked.walk(Use::read, Order::alternating);
  EXPECT_EQ(checked.store().moved_bytes() - before, (kTiles - 4) * kTile);
}

// At whichever transfer: the walk throws, and so does every later one.
TEST(TileStore, AFailedTransferEndsIt) {
  int failed = 0;
  for (int at = 0; at < 60; ++at) {
    int countdown = at;
    Checked checked(kSizes, 4, true, &countdown);
    const auto all = [&] {
      checked.walk(Use::fill, Order::forward);
      for (int round = 0; round < 3; ++round) checked.walk(Use::update, Order::alternating);
    };
    try {
      all();
    } catch (const IoError&) {
      ++failed;
      EXPECT_THROW(checked.store().walk(Use::read, Order::forward, {}), IoError);
    }
  }
  EXPECT_GT(failed, 30);
}

// An error of the caller's own changes nothing else.
TEST(TileStore, AVisitMayThrow) {
  Checked checked(kSizes, 4);
  checked.walk(Use::fill, Order::forward);
  for (std::size_t at = 0; at < kSizes.size(); ++at) {
    EXPECT_THROW(checked.store().walk(Use::read, Order::forward,
                                      [&](std::size_t tile, std::byte*) {
                                        if (tile == at) throw InvalidArgument("no");
                                      }),
                 InvalidArgument);
    checked.walk(Use::update, Order::forward);
  }
}

TEST(TileStore, WithoutADeviceAllMustFit) {
  const Aligned memory(3 * 4096);
  EXPECT_THROW(TileStore({1, 2, 3, 4}, 3, memory.data(), nullptr), InvalidArgument);
  TileStore store({4096, 100, 5}, 3, memory.data(), nullptr);
  int sum = 0;
  store.walk(Use::fill, Order::forward,
             [](std::size_t tile, std::byte* bytes) { bytes[0] = std::byte(tile + 1); });
  store.walk(Use::update, Order::alternating,
             [&](std::size_t, std::byte* bytes) { sum += std::to_integer<int>(bytes[0]); });
  EXPECT_EQ(sum, 6);
}

}  // namespace
}  // namespace ration::test

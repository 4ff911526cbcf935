#pragma once
// State that is larger than its memory, in tiles: a walk brings each into memory, lets the caller
// change it, and writes it back, while the next ones are on their way.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "offload/block_device.hpp"

namespace ration::offload {

/// Bytes of a tile in memory and on the device: its own, up to the next multiple of what a direct
/// transfer wants.
std::size_t padded(std::size_t bytes);

class TileStore {
 public:
  /// What a walk does to tiles.
  enum class Use : std::uint8_t {
    read,
    update,
    fill  ///< every byte is written, none read
  };
  enum class Order : std::uint8_t {
    forward,     ///< from the first tile to the last
    alternating  ///< the other way than the walk before, so that it begins with what is in memory
  };
  /// With the tile's number and bytes, which are the caller's until it returns.
  using Visit = std::function<void(std::size_t tile, std::byte* bytes)>;

  /// The smallest number of slots: one in use, one on its way in, one on its way out.
  static constexpr std::size_t kLeastSlots = 3;

  /// `memory`: `slots` times the largest `padded` tile, aligned to io::kDirectAlignment; outlives
  /// this. The device has the padded tiles one after the other and a ticket for each slot. It may
  /// be null where there are as many slots as tiles: then nothing is ever moved.
  TileStore(const std::vector<std::size_t>& tile_bytes, std::size_t slots, std::byte* memory,
            std::unique_ptr<BlockDevice> device);
  /// Waits for transfers under way.
  ~TileStore();
  TileStore(const TileStore&) = delete;
  TileStore& operator=(const TileStore&) = delete;

  /// Visits every tile once. What was not filled or updated before holds anything. Throws IoError,
  /// or what `visit` throws; after an IoError tiles are lost, and so every later walk throws it.
  void walk(Use use, Order order, const Visit& visit);

  /// One tile in memory until the next call, for who does not come in order; `update` and `fill`
  /// say that it will be changed. Throws IoError, as `walk`.
  std::byte* hold(std::size_t tile, Use use);

  /// Whether the walk under way, or the last one, goes from the last tile to the first.
  [[nodiscard]] bool backward() const { return backward_; }
  [[nodiscard]] std::size_t tiles() const { return places_.size(); }
  [[nodiscard]] std::uint64_t moved_bytes() const { return moved_; }  ///< read and written so far

 private:
  static constexpr std::size_t kNone = SIZE_MAX;
  enum class Transit : std::uint8_t { none, in, out };
  struct Slot {
    std::size_t tile = kNone;
    Transit transit = Transit::none;
    bool dirty = false;    ///< not as on the device
    bool visited = false;  ///< in this walk
  };
  struct Place {
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
    std::size_t slot = kNone;  ///< where it is in memory
  };
  class Walk;

  void begin(std::size_t slot, Transfer::Way way);
  void settle(std::size_t slot);
  void release(std::size_t slot);
  std::size_t bring_in(std::size_t tile, Use use);
  void expect(std::size_t tile);
  [[nodiscard]] std::size_t victim() const;

  std::vector<Place> places_;
  std::vector<Slot> slots_;
  std::byte* memory_;
  std::size_t slot_bytes_ = 0;
  std::unique_ptr<BlockDevice> device_;
  bool backward_ = false;
  std::size_t hand_ = 0;  ///< the slot that `hold` has given last
  std::exception_ptr failure_;
  std::uint64_t moved_ = 0;
};

}  // namespace ration::offload

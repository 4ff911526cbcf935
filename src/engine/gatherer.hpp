#pragma once
// Whole parameters: gather and release of units at stage 3, the re-gather after an update below it.

#include <memory>
#include <vector>

#include "engine/context.hpp"
#include "engine/order.hpp"

namespace ration {

enum class Pass : std::uint8_t { none, forward, backward, evaluation };

class Gatherer {
 public:
  explicit Gatherer(Context& context);

  /// Collective: makes shards readable and plans the orders, once the state is allocated.
  void prepare();

  /// Ends the pass under way and begins another. Where gathers are matched across ranks, units that
  /// this rank never asked for are joined first.
  void begin_pass(Pass pass);
  /// Joins what is left of the pass under way, where gathers are matched. Does not wait: the stream
  /// takes a whole pass.
  void join_pass();
  /// A unit with a guard alive.
  [[nodiscard]] std::optional<int> any_held() const;
  /// No more gathers in the pass under way; what is left of it is joined when the next begins.
  void close() { open_ = false; }

  /// Whole only between gather and release, rather than always.
  [[nodiscard]] bool gathered_in_slot(int unit) const;

  /// Blocks until the unit is whole. Throws InvalidArgument for a second gather in a pass, outside
  /// a pass, or when every slot is held.
  void gather(int unit);
  void release(int unit);
  [[nodiscard]] bool held(int unit) const { return units_[unit].held > 0; }
  /// Of a gathered unit, or of one that is always whole.
  [[nodiscard]] const std::byte* address(int parameter) const;

  /// The own shards of the unit are rewritten: readers may have them, and where the stage keeps the
  /// unit whole its gather starts.
  void publish(int unit);
  /// Everything in flight is done; the units' wholes are those of the last `publish`.
  void settle();
  /// What slots hold is out of date from here: the shards are about to be rewritten.
  void invalidate();

  /// Collective, outside passes: gathers a flat into memory of the caller's.
  void gather_flat(int flat, std::byte* whole);

  [[nodiscard]] CanonicalOrder& forward_order() { return forward_; }
  [[nodiscard]] CanonicalOrder& backward_order() { return backward_; }
  [[nodiscard]] const CanonicalOrder& forward_order() const { return forward_; }
  [[nodiscard]] const CanonicalOrder& backward_order() const { return backward_; }

 private:
  struct Slot {
    std::byte* memory = nullptr;
    int unit = -1;  ///< whose parameters it holds or receives
    bool held = false;
    std::unique_ptr<Event> released;
  };
  struct UnitState {
    int held = 0;
    std::uint64_t asked_in = 0;    ///< the pass in which it was asked for last
    std::uint64_t fetched_in = 0;  ///< the pass in which it was gathered or joined last
    int slot = -1;
    std::byte* memory = nullptr;  ///< where the whole is while it is gathered in a slot
    std::unique_ptr<Event> ready;
  };

  CanonicalOrder* order();
  void join_until(int unit);
  void give_back();
  void fetch(int unit);
  void join_held(int unit);
  void submit(int unit, std::byte* memory);
  void all_gather(int flat, std::byte* whole);
  int take_slot(int unit);
  void drop(int unit);

  Context& c_;
  std::vector<std::unique_ptr<SharedShards>> shares_;  ///< per flat; null where nothing is gathered
  std::vector<UnitState> units_;
  std::vector<Slot> slots_;
  CanonicalOrder forward_;
  CanonicalOrder backward_;
  CanonicalOrder evaluation_;
  Pass pass_ = Pass::none;
  std::uint64_t pass_number_ = 0;
  bool one_sided_ = true;
  bool open_ = false;
};

}  // namespace ration

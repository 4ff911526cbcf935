#pragma once
// The order in which all ranks start their gathers, or their reduces: the same on each, so that
// collectives match.

#include <optional>
#include <vector>

namespace ration {

/// Registration order (reversed for a backward) until rank 0's first pass is known; rank 0's order
/// then comes back in the step header and holds for all. Units that a rank does not use keep their
/// place after their former predecessor.
class CanonicalOrder {
 public:
  void reset(std::vector<int> units);
  [[nodiscard]] const std::vector<int>& units() const { return units_; }

  /// Starts at the front and forgets what was recorded.
  void begin_pass();
  /// The unit whose turn it is; nullopt at the end.
  [[nodiscard]] std::optional<int> next() const;
  void advance() { ++position_; }
  /// How many units have had their turn.
  [[nodiscard]] std::size_t position() const { return position_; }
  /// True when the unit's turn has been.
  [[nodiscard]] bool passed(int unit) const;

  /// This rank used the unit now.
  void record(int unit) { recorded_.push_back(unit); }
  /// The order this rank's last pass asks for, when the present one does not serve it.
  [[nodiscard]] std::optional<std::vector<int>> proposal() const;

 private:
  std::vector<int> units_;
  std::vector<int> recorded_;
  std::size_t position_ = 0;
};

}  // namespace ration

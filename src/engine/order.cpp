#include "engine/order.hpp"

#include <algorithm>

namespace ration {

void CanonicalOrder::reset(std::vector<int> units) {
  units_ = std::move(units);
  begin_pass();
}

void CanonicalOrder::begin_pass() {
  recorded_.clear();
  position_ = 0;
}

std::optional<int> CanonicalOrder::next() const {
  if (position_ >= units_.size()) return std::nullopt;
  return units_[position_];
}

bool CanonicalOrder::passed(int unit) const {
  const auto end = units_.begin() + static_cast<std::ptrdiff_t>(std::min(position_, units_.size()));
  return std::find(units_.begin(), end, unit) != end;
}

std::optional<std::vector<int>> CanonicalOrder::proposal() const {
  // Served when what was used is a subsequence of the present order.
  auto from = units_.begin();
  const bool served = std::all_of(recorded_.begin(), recorded_.end(), [&](int unit) {
    from = std::find(from, units_.end(), unit);
    return from != units_.end();
  });
  if (served) return std::nullopt;
  std::vector<int> order = recorded_;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (std::find(order.begin(), order.end(), units_[i]) != order.end()) continue;
    auto place = order.begin();
    if (i > 0) place = std::find(order.begin(), order.end(), units_[i - 1]) + 1;
    order.insert(place, units_[i]);
  }
  return order;
}

}  // namespace ration

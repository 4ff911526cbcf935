#include "comm/collectives/rank_group.hpp"

namespace ration {

void RankGroup::set_members(std::vector<Member*> members) {
  members_ = std::move(members);
  near_.clear();
  far_.clear();
  far_index_.assign(names_.size(), 0);
  for (int rank = 0; rank < size(); ++rank) {
    if (is_near(rank)) {
      near_.push_back(rank);
    } else {
      far_index_[static_cast<std::size_t>(rank)] = far_.size();
      far_.push_back(rank);
    }
  }
}

}  // namespace ration

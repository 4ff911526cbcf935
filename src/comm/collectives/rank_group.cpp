#include "comm/collectives/rank_group.hpp"

#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include <ration/error.hpp>

namespace ration {

std::optional<StreamMode> stream_mode_from(const char* variable) {
  const char* value = std::getenv(variable);
  const std::string_view text = value ? value : "";
  if (text.empty()) return std::nullopt;
  if (text == "direct") return StreamMode::direct;
  if (text == "streams") return StreamMode::streams;
  throw InvalidArgument(fmt::format("{}=\"{}\": expected direct or streams", variable, text));
}

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

#include "control/tcp/star.hpp"

#include <utility>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "control/tcp/place.hpp"
#include "control/tcp/star_control.hpp"

namespace ration {

std::shared_ptr<Star> Star::meet(const Meeting& meeting, std::shared_ptr<Alarm> alarm,
                                 std::unique_ptr<Listener> listener) {
  if (meeting.size < 1 || meeting.rank < 0 || meeting.rank >= meeting.size) {
    throw InvalidArgument(
        fmt::format("rank {} of {}: a rank is at least 0 and less than the number of ranks",
                    meeting.rank, meeting.size));
  }
  if (meeting.rank > 0 && (meeting.hosts.empty() || meeting.ports.empty())) {
    throw InvalidArgument(
        fmt::format("rank {}: no address or no port of rank 0 was given", meeting.rank));
  }
  auto place = meeting.rank == 0
                   ? tcp::make_hub_place(meeting, std::move(alarm), std::move(listener))
                   : tcp::make_point_place(meeting, std::move(alarm));
  std::shared_ptr<Star> star(new Star(std::move(place)));
  star->place_->meet();
  return star;
}

Star::Star(std::unique_ptr<tcp::Place> place) : place_(std::move(place)) {}

Star::~Star() {
  place_->close();
}

int Star::rank() const {
  return place_->rank();
}

int Star::size() const {
  return place_->size();
}

std::unique_ptr<Control> Star::control(std::uint64_t group, std::vector<int> names, int rank) {
  return std::make_unique<tcp::StarControl>(shared_from_this(), *place_, group, std::move(names),
                                            rank);
}

std::uint64_t Star::new_group() {
  constexpr int kCounterBits = 40;
  return (static_cast<std::uint64_t>(rank() + 1) << kCounterBits) | next_group_++;
}

void Star::depart() {
  place_->depart();
}

std::uint64_t Star::sent_bytes() const {
  return place_->sent_bytes();
}

std::size_t Star::groups() const {
  return place_->groups();
}

}  // namespace ration

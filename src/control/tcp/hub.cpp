#include "control/tcp/hub.hpp"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ration::tcp {
namespace {

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

Failure astray(int from, const std::string& what) {
  return {Failure::Kind::communication_error,
          fmt::format("rank 0: rank {} {}; every rank must make the same calls", from, what)};
}

}  // namespace

Hub::Hub(int ranks, Outlet& outlet) : ranks_(ranks), outlet_(outlet), departed_(index(ranks)) {}

bool Hub::valid(int from, int leader, int member, int size) const {
  return from >= 0 && from < ranks_ && leader >= 0 && leader < ranks_ && size >= 1 &&
         size <= ranks_ && member >= 0 && member < size;
}

Hub::Group& Hub::group(std::uint64_t number, int leader, int size) {
  const auto [found, made] = groups_.try_emplace(number);
  Group& group = found->second;
  if (made) {
    group.leader = leader;
    group.size = size;
  }
  return group;
}

Hub::Verdict Hub::open(int from, Opening&& opening) {
  const std::lock_guard lock(mutex_);
  const int size = static_cast<int>(opening.names.size());
  bool sound = valid(from, from, 0, size) && opening.names.front() == from;
  for (const int name : opening.names) sound = sound && name >= 0 && name < ranks_;
  if (!sound) return astray(from, fmt::format("opens group {:x} wrongly", opening.group));
  Group& group = this->group(opening.group, from, size);
  if (group.leader != from || group.size != size || !group.names.empty())
    return astray(from, fmt::format("opens group {:x} otherwise than others do", opening.group));
  group.names = std::move(opening.names);
  return hopeless(group);
}

Hub::Verdict Hub::record(int from, Record&& record) {
  const std::lock_guard lock(mutex_);
  const std::string& name = record.key.channel;
  if (!valid(from, record.leader, record.member, record.size))
    return astray(from, fmt::format("is no member {} of {}", record.member, record.size));
  Group& group = this->group(record.key.group, record.leader, record.size);
  const auto member = index(record.member);
  if (group.size != record.size || group.leader != record.leader ||
      (!group.names.empty() && group.names[member] != from))
    return astray(from, fmt::format("comes to {} ({} #{}) with another group", record.what, name,
                                    record.key.number));
  Channel& channel = group.channels[name];
  if (channel.present.empty()) {
    channel.records.resize(index(group.size));
    channel.present.resize(index(group.size));
  }
  if (record.key.number != channel.number || channel.present[member])
    return astray(from, fmt::format("comes to {} ({} #{}) when fold #{} is due", record.what, name,
                                    record.key.number, channel.number));
  channel.records[member] = std::move(record.bytes);
  channel.present[member] = 1;
  if (channel.arrived == 0) {
    channel.first = from;
    channel.what = std::move(record.what);
  }
  if (++channel.arrived == group.size) {
    outlet_.combine(group.leader, {record.key, std::exchange(channel.records, {})});
    return std::nullopt;
  }
  return channel.arrived == 1 ? hopeless(group, name, channel) : std::nullopt;
}

Hub::Verdict Hub::result(int from, Result&& result) {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(result.key.group);
  if (found == groups_.end()) return astray(from, "gives a result to no group");
  Group& group = found->second;
  const auto channel = group.channels.find(result.key.channel);
  if (from != group.leader || channel == group.channels.end() ||
      channel->second.number != result.key.number || channel->second.arrived != group.size ||
      group.names.empty())
    return astray(from, fmt::format("gives a result to {} #{}, which is not due",
                                    result.key.channel, result.key.number));
  Channel& fold = channel->second;
  ++fold.number;
  fold.arrived = 0;
  fold.records.resize(index(group.size));
  fold.present.assign(index(group.size), 0);
  outlet_.result(std::span(group.names).subspan(1), std::move(result));
  return std::nullopt;
}

Hub::Verdict Hub::late(int from, const Late& late, const Remark& remark) {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(late.key.group);
  if (found == groups_.end()) return std::nullopt;
  const Group& group = found->second;
  const auto channel = group.channels.find(late.key.channel);
  if (channel == group.channels.end() || channel->second.number != late.key.number ||
      channel->second.arrived == group.size || late.names.size() != index(group.size))
    return std::nullopt;
  std::vector<int> missing;
  std::string remarks;
  for (int rank = 0; rank < group.size; ++rank) {
    if (channel->second.present[index(rank)]) continue;
    missing.push_back(late.names[index(rank)]);
    remarks += remark(missing.back());
  }
  return Failure{Failure::Kind::timeout,
                 fmt::format("rank {}: {} ({} #{}): timed out after {:.1f} s waiting for rank{} "
                             "{}{}",
                             from, late.what, late.key.channel, late.key.number, late.seconds,
                             missing.size() == 1 ? "" : "s", fmt::join(missing, ", "), remarks)};
}

Hub::Verdict Hub::leave(int from, const Leaving& leaving) {
  const std::lock_guard lock(mutex_);
  if (!valid(from, leaving.leader, leaving.member, leaving.size))
    return astray(from, fmt::format("is no member {} of {}", leaving.member, leaving.size));
  Group& group = this->group(leaving.group, leaving.leader, leaving.size);
  if (++group.left >= group.size) groups_.erase(leaving.group);
  return std::nullopt;
}

Hub::Verdict Hub::depart(int name) {
  const std::lock_guard lock(mutex_);
  departed_[index(name)] = 1;
  any_departed_ = true;
  for (const auto& [number, group] : groups_) {
    if (auto verdict = hopeless(group)) return verdict;
  }
  return std::nullopt;
}

Hub::Verdict Hub::hopeless(const Group& group) const {
  for (const auto& [name, channel] : group.channels) {
    if (auto verdict = hopeless(group, name, channel)) return verdict;
  }
  return std::nullopt;
}

// A fold that somebody waits in, for somebody who has departed and was to come or to combine.
Hub::Verdict Hub::hopeless(const Group& group, const std::string& name,
                           const Channel& channel) const {
  if (!any_departed_ || channel.arrived == 0) return std::nullopt;
  const bool to_combine = channel.arrived == group.size;
  int ended = -1;
  if (departed_[index(group.leader)] && (to_combine || !channel.present[0])) ended = group.leader;
  for (std::size_t rank = 0; rank < group.names.size(); ++rank) {
    if (!channel.present[rank] && departed_[index(group.names[rank])]) ended = group.names[rank];
  }
  if (ended < 0) return std::nullopt;
  return Failure{Failure::Kind::communication_error,
                 fmt::format("rank {}: {} ({} #{}): rank {} has ended without it; every rank must "
                             "make the same calls",
                             channel.first, channel.what, name, channel.number, ended)};
}

std::size_t Hub::groups() const {
  const std::lock_guard lock(mutex_);
  return groups_.size();
}

}  // namespace ration::tcp

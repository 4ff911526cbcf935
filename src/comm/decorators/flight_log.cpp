#include "comm/decorators/flight_log.hpp"

#include <algorithm>
#include <cstring>

namespace ration {
namespace {

template <std::size_t N>
void put(std::array<char, N>& to, std::string_view text) {
  const std::size_t length = std::min(text.size(), N - 1);
  std::memcpy(to.data(), text.data(), length);
  to[length] = '\0';
}

// Whether every rank of the group asks for it too.
bool is_matched(const Operation& operation) {
  if (operation.kind == OperationKind::send || operation.kind == OperationKind::recv) return false;
  return !operation.shards || !operation.shards->one_sided();
}

}  // namespace

FlightLog::FlightLog() : entries_(kKept) {}

std::unique_ptr<FlightLog::Group> FlightLog::add_group(std::string name, int rank, int size) {
  const std::lock_guard lock(mutex_);
  // The place of a group that has ended and of which nothing is kept any more, so that a job that
  // makes groups for ever needs no more memory for it.
  const auto forgotten = [&](const GroupInfo& info) {
    return !info.open && info.used + kKept <= count_;
  };
  auto place = std::find_if(groups_.begin(), groups_.end(), forgotten);
  if (place == groups_.end()) place = groups_.emplace(groups_.end());
  *place = {.group = {.name = name, .rank = rank, .size = size}, .open = true, .used = 0};
  return std::unique_ptr<Group>(new Group(shared_from_this(), std::move(name), size,
                                          static_cast<std::size_t>(place - groups_.begin())));
}

FlightLog::Group::~Group() {
  const std::lock_guard lock(log_->mutex_);
  log_->groups_[place_].open = false;
}

// As backends count, so that messages and records name an operation alike.
Sequence FlightLog::Group::next(const Operation& operation, bool matched) {
  if (matched) return matched_++;
  const bool sends = operation.kind == OperationKind::send;
  if (!sends && operation.kind != OperationKind::recv) return alone_++;
  const auto peer = static_cast<std::size_t>(operation.peer);
  std::vector<Sequence>& by_peer = sends ? sent_ : received_;
  if (by_peer.empty()) by_peer.resize(static_cast<std::size_t>(size_));
  return peer < by_peer.size() ? by_peer[peer]++ : 0;  // the backend refuses a peer beyond
}

FlightLog::Entry& FlightLog::add(Group& group) {
  Entry& entry = entries_[count_ % kKept];
  entry.group = group.place_;
  entry.submitted = Clock::now();
  entry.ended = {};
  entry.state = OperationState::submitted;
  groups_[group.place_].used = ++count_;
  return entry;
}

FlightLog::Pending FlightLog::begin(Group& group, const Operation& operation) {
  const std::uint64_t bytes = sent_by(operation, group.size_);
  const bool matched = is_matched(operation);
  if (matched) {
    group.history_ = operation.history
                         ? operation.history
                         : combine_fingerprints(group.history_, fingerprint(operation));
  }
  const auto kind = static_cast<std::size_t>(operation.kind);
  const std::lock_guard lock(mutex_);
  bytes_[kind] += bytes;
  ++operations_[kind];
  const std::uint64_t number = count_;
  Entry& entry = add(group);
  entry.fold = false;
  entry.matched = matched;
  entry.sequence = group.next(operation, matched);
  entry.history = matched ? group.history_ : 0;
  entry.kind = operation.kind;
  entry.type = operation.type;
  entry.count = operation.count;
  entry.peer = operation.peer;
  entry.sent_bytes = bytes;
  put(entry.tag, operation.tag);
  return {shared_from_this(), number};
}

FlightLog::Pending FlightLog::begin_fold(Group& group, std::string_view channel, std::size_t bytes,
                                         std::string_view what) {
  const std::lock_guard lock(mutex_);
  auto found = std::find_if(group.channels_.begin(), group.channels_.end(),
                            [&](const Group::Channel& c) { return c.name == channel; });
  if (found == group.channels_.end()) {
    found = group.channels_.insert(found, {.name = std::string(channel)});
  }
  const std::uint64_t number = count_;
  Entry& entry = add(group);
  entry.fold = true;
  entry.matched = true;
  entry.sequence = found->next++;
  entry.history = 0;
  entry.count = 0;
  entry.peer = -1;
  entry.sent_bytes = bytes;
  put(entry.channel, channel);
  put(entry.tag, what);
  return {shared_from_this(), number};
}

void FlightLog::end(std::uint64_t number, OperationState state) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  if (number + kKept < count_) return;  // another operation has its place by now
  Entry& entry = entries_[number % kKept];
  entry.state = state;
  entry.ended = now;
}

RecordedOperation FlightLog::readable(const Entry& entry) const {
  const auto milliseconds = [&](Clock::time_point time) {
    return std::chrono::duration<double, std::milli>(time - start_).count();
  };
  RecordedOperation operation;
  operation.group = groups_[entry.group].group.name;
  operation.kind = entry.fold ? "fold" : name_of(entry.kind);
  if (entry.fold) operation.channel = entry.channel.data();
  operation.sequence = entry.sequence;
  operation.matched = entry.matched;
  if (!entry.fold && entry.kind != OperationKind::barrier) operation.type = name_of(entry.type);
  operation.count = entry.count;
  operation.tag = entry.tag.data();
  operation.peer = entry.peer;
  operation.history = entry.history;
  operation.sent_bytes = entry.sent_bytes;
  operation.state = entry.state;
  operation.submitted_ms = milliseconds(entry.submitted);
  if (entry.state != OperationState::submitted) operation.ended_ms = milliseconds(entry.ended);
  return operation;
}

std::vector<RecordedOperation> FlightLog::last() const {
  const std::lock_guard lock(mutex_);
  std::vector<RecordedOperation> result;
  const std::uint64_t kept = std::min(count_, kKept);
  result.reserve(kept);
  for (std::uint64_t number = count_ - kept; number < count_; ++number) {
    result.push_back(readable(entries_[number % kKept]));
  }
  return result;
}

std::vector<RecordedGroup> FlightLog::groups() const {
  const std::lock_guard lock(mutex_);
  std::vector<RecordedGroup> result;
  for (const GroupInfo& info : groups_) {
    if (info.open || info.used + kKept > count_) result.push_back(info.group);
  }
  return result;
}

std::uint64_t FlightLog::bytes(OperationKind kind) const {
  const std::lock_guard lock(mutex_);
  return bytes_[static_cast<std::size_t>(kind)];
}

std::uint64_t FlightLog::operations(OperationKind kind) const {
  const std::lock_guard lock(mutex_);
  return operations_[static_cast<std::size_t>(kind)];
}

}  // namespace ration

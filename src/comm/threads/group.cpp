#include "comm/threads/group.hpp"

#include <algorithm>
#include <cstring>

namespace ration {
namespace {

DType sent_type(const Operation& operation) {
  return operation.kind == OperationKind::all_reduce ? operation.send_type : operation.type;
}

}  // namespace

bool Slot::is_eager(const Operation& operation) {
  return (operation.kind == OperationKind::broadcast ||
          operation.kind == OperationKind::all_reduce) &&
         operation.count * size_of(sent_type(operation)) <= kEager;
}

bool Slot::leaves_send_in_reach(const Operation& operation, int rank) {
  switch (operation.kind) {
    case OperationKind::reduce_scatter:
    case OperationKind::all_gather:
    case OperationKind::send:
      return true;
    case OperationKind::broadcast:
      return operation.peer == rank && !is_eager(operation);
    default:  // a large all_reduce ends when all are done
      return false;
  }
}

void Slot::post(const Operation& what, std::uint64_t number) {
  operation = what;
  fingerprint = ration::fingerprint(what);
  source = what.send;
  const std::size_t length = std::min(std::strlen(what.tag), sizeof tag - 1);
  std::memcpy(tag, what.tag, length);
  tag[length] = '\0';
  if (is_eager(what) && what.send && what.count > 0) {
    std::memcpy(eager, what.send, what.count * size_of(sent_type(what)));
    source = eager;
  }
  posted.store(number + 1, std::memory_order_release);
}

std::string Slot::describe(std::uint64_t number) const {
  return ration::describe(operation, number, tag);
}

ThreadsGroup::ThreadsGroup(std::vector<int> names, ThreadsOptions::Mode mode,
                           std::shared_ptr<Alarm> alarm)
    : names_(std::move(names)),
      mode_(mode),
      alarm_(std::move(alarm)),
      hub_(make_in_process_hub(names_, alarm_)) {
  for (std::size_t i = 0; i < names_.size(); ++i) members_.push_back(std::make_unique<Member>());
}

ThreadsGroup::Pair& ThreadsGroup::pair(int sender, int receiver) {
  const std::lock_guard lock(mutex_);
  auto& pair = pairs_[{sender, receiver}];
  if (!pair) pair = std::make_unique<Pair>();
  return *pair;
}

void ThreadsGroup::keep(std::shared_ptr<Memory> memory) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(memory));
}

std::uint64_t ThreadsGroup::leave(std::shared_ptr<void> object, int takers) {
  const std::lock_guard lock(mutex_);
  left_[next_left_] = {std::move(object), takers};
  return next_left_++;
}

std::shared_ptr<void> ThreadsGroup::take(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = left_.find(number);
  std::shared_ptr<void> object = found->second.first;
  if (--found->second.second == 0) left_.erase(found);
  return object;
}

}  // namespace ration

#include "comm/collectives/exchange.hpp"

namespace ration {

void Exchange::send(int peer, const void* data, std::size_t bytes) {
  const RankGroup& group = waiter_.group();
  waiting_.push_back({group.messages()->send(group.name(peer), tag_, data, bytes), peer, false});
}

void Exchange::receive(int peer, void* data, std::size_t bytes) {
  const RankGroup& group = waiter_.group();
  waiting_.push_back({group.messages()->receive(group.name(peer), tag_, data, bytes), peer, true});
}

void Exchange::send_owned(int peer, std::uint32_t tag, std::shared_ptr<const void> data,
                          std::size_t bytes) {
  const RankGroup& group = waiter_.group();
  owned_ = std::move(data);
  waiting_.push_back(
      {group.messages()->send(group.name(peer), tag, owned_.get(), bytes), peer, false});
}

std::vector<int> Exchange::missing() const {
  std::vector<int> incoming;
  std::vector<int> outgoing;
  for (const Waiting& waiting : waiting_) {
    if (waiting.message->wait(Deadline::min())) continue;
    (waiting.incoming ? incoming : outgoing).push_back(waiting.peer);
  }
  return incoming.empty() ? outgoing : incoming;
}

void Pieces::start_what_fits() {
  while (started_ < pieces_ && started_ < finished_ + kDepth) {
    auto& exchange = exchanges_[started_ % kDepth];
    exchange = std::make_unique<Exchange>(waiter_, tag_);
    start_(started_++, *exchange);
  }
}

}  // namespace ration

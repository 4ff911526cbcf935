#include "control/tcp/star_control.hpp"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "core/timeout.hpp"
#include "device/host/polling_wait.hpp"

namespace ration::tcp {

StarControl::StarControl(std::shared_ptr<Star> star, Place& place, std::uint64_t group,
                         std::vector<int> names, int rank)
    : star_(std::move(star)), place_(place), group_(group), names_(std::move(names)), rank_(rank) {
  place_.enter(group_, *this);
  if (rank_ == 0) place_.open({group_, names_});
}

StarControl::~StarControl() {
  place_.leave({group_, names_.front(), rank_, size()});
  place_.exit(group_);
}

void StarControl::fold(std::string_view channel_name, const Bytes& record, const Combine& combine,
                       Bytes& result, std::string_view what) {
  place_.alarm().check_arriving();
  Channel& channel = this->channel(channel_name);
  const FoldKey key{group_, std::string(channel_name), channel.next++};
  channel.due.store(key.number + 1, std::memory_order_release);
  place_.record({key, names_.front(), rank_, size(), std::string(what), record});
  await(channel, key, what);
  if (channel.combining) {
    channel.combining = false;
    channel.result.key = key;
    run(channel, combine);
    place_.result(Result(channel.result));
  }
  if (channel.result.failed) channel.result.failure.raise();
  result.assign(channel.result.bytes.begin(), channel.result.bytes.end());
}

void StarControl::run(Channel& channel, const Combine& combine) {
  channel.result.failed = false;
  channel.result.bytes.clear();
  try {
    combine(channel.records, channel.result.bytes);
  } catch (...) {
    channel.result.failure = Failure::current();
    channel.result.failed = true;
    channel.result.bytes.clear();
  }
  channel.records.clear();
}

void StarControl::await(Channel& channel, const FoldKey& key, std::string_view what) {
  Alarm& alarm = place_.alarm();
  const auto taken = [&] {
    return channel.taken.load(std::memory_order_acquire) == key.number + 1;
  };
  const auto over = [&] { return taken() || alarm.raised(); };
  const auto timeout = operation_timeout();
  while (!wait_polling(channel.signal, over, Clock::now() + timeout)) {
    // Who is missing only the hub knows. Its answer is the end of the job, or that all have come.
    const double seconds = std::chrono::duration<double>(timeout).count();
    const std::uint64_t before = channel.patience.load(std::memory_order_acquire);
    place_.late({key, rank_, std::string(what), seconds, names_});
    const auto answered = [&] {
      return over() || channel.patience.load(std::memory_order_acquire) != before;
    };
    const auto grace = timeout / 4 + std::chrono::seconds(1);
    if (!wait_polling(channel.signal, answered, Clock::now() + grace)) {
      alarm.raise(
          {Failure::Kind::timeout,
           fmt::format("rank {}: {} ({} #{}): timed out after {:.1f} s, and rank 0, which knows "
                       "who is missing, does not answer: it is stopped, or its host cannot be "
                       "reached",
                       place_.rank(), what, key.channel, key.number, seconds)});
    }
  }
  if (!taken()) alarm.check_waiting();
}

void StarControl::abort(std::string_view reason) {
  place_.alarm().raise({Failure::Kind::remote_error, std::string(reason)});
}

std::optional<std::string> StarControl::aborted() const {
  return place_.alarm().reason();
}

StarControl::Channel& StarControl::channel(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = channels_.find(name);
  if (found != channels_.end()) return found->second;
  return channels_.try_emplace(std::string(name)).first->second;
}

// The channel that waits for just this and has not had it yet.
StarControl::Channel* StarControl::expecting(const FoldKey& key) {
  const std::lock_guard lock(mutex_);
  const auto found = channels_.find(key.channel);
  if (found == channels_.end()) return nullptr;
  Channel& channel = found->second;
  const bool due = channel.due.load(std::memory_order_acquire) == key.number + 1 &&
                   channel.taken.load(std::memory_order_relaxed) != key.number + 1;
  return due ? &channel : nullptr;
}

void StarControl::take(tcp::Combine&& combine) {
  Channel* channel = expecting(combine.key);
  if (!channel) return;
  channel->records = std::move(combine.records);
  channel->combining = true;
  channel->taken.store(combine.key.number + 1, std::memory_order_release);
  channel->signal.notify();
}

void StarControl::take(Result&& result) {
  Channel* channel = expecting(result.key);
  if (!channel) return;
  const std::uint64_t number = result.key.number;
  channel->result = std::move(result);
  channel->taken.store(number + 1, std::memory_order_release);
  channel->signal.notify();
}

void StarControl::take(const Patience& patience) {
  Channel* channel = expecting(patience.key);
  if (!channel) return;
  channel->patience.fetch_add(1, std::memory_order_release);
  channel->signal.notify();
}

}  // namespace ration::tcp

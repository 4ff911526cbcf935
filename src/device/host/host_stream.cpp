#include "device/host/host_stream.hpp"

#include <algorithm>
#include <vector>

#include <ration/error.hpp>

#include "core/log.hpp"

namespace ration {
namespace {

// Deferred streams by the thread that made them, the rank's own.
thread_local std::vector<HostStream*> deferred_streams;

// The stream that this thread is the worker of.
thread_local const HostStream* worker_of = nullptr;

constexpr auto kForever = Deadline::max();

}  // namespace

class HostEvent final : public Event {
 public:
  [[nodiscard]] bool complete() const override {
    return !stream_ || stream_->done_.load(std::memory_order_acquire) >= ticket_;
  }
  void synchronize() override {
    if (stream_) stream_->run_until(ticket_);
  }

 private:
  friend class HostStream;
  HostStream* stream_ = nullptr;
  std::uint64_t ticket_ = 0;
};

HostStream::HostStream(Mode mode, const char* name, std::size_t tasks)
    : mode_(mode), name_(name), rank_(log::thread_rank()), capacity_(tasks) {
  if (mode_ == Mode::immediate) return;
  ring_ = std::make_unique<Task[]>(capacity_);
  if (mode_ == Mode::deferred) deferred_streams.push_back(this);
  if (mode_ == Mode::worker) thread_ = std::thread([this] { work(); });
}

HostStream::~HostStream() {
  if (mode_ == Mode::worker) {
    stop_.store(true);
    work_signal_.notify();
    thread_.join();
  }
  std::erase(deferred_streams, this);
  for (auto i = done_.load(); i < put_.load(); ++i) {
    Task& task = ring_[i % capacity_];
    task.destroy(task.storage);
  }
}

HostStream::Task& HostStream::claim() {
  const std::uint64_t put = put_.load(std::memory_order_relaxed);
  if (put - done_.load(std::memory_order_acquire) == capacity_) run_until(put - capacity_ + 1);
  return ring_[put % capacity_];
}

void HostStream::commit() {
  put_.fetch_add(1, std::memory_order_release);
  if (mode_ == Mode::worker) work_signal_.notify();
  // A deferred stream starts what it can at once: posting early is what lets peers go on.
  if (mode_ == Mode::deferred) poll();
}

bool HostStream::run_one(bool may_block) {
  const std::uint64_t done = done_.load(std::memory_order_relaxed);
  Task& task = ring_[done % capacity_];
  if (!failed_.load(std::memory_order_relaxed) && !abandoned_.load(std::memory_order_acquire)) {
    try {
      running_ = true;
      const bool finished = task.run(task.storage, may_block);
      running_ = false;
      if (!finished) return false;
    } catch (...) {
      running_ = false;
      fail(std::current_exception());
    }
  }
  task.destroy(task.storage);
  done_.store(done + 1, std::memory_order_release);
  return true;
}

void HostStream::abandon() {
  abandoned_.store(true, std::memory_order_release);
}

bool HostStream::abandoned() {
  return worker_of && worker_of->abandoned_.load(std::memory_order_acquire);
}

void HostStream::poll() {
  if (mode_ != Mode::deferred || running_) return;
  while (done_.load(std::memory_order_relaxed) < put_.load(std::memory_order_relaxed)) {
    if (!run_one(false)) return;
  }
}

void HostStream::poll_thread() {
  for (HostStream* stream : deferred_streams) stream->poll();
}

void HostStream::run_until(std::uint64_t ticket) {
  if (mode_ == Mode::deferred) {
    while (done_.load(std::memory_order_relaxed) < ticket) run_one(true);
  } else if (mode_ == Mode::worker) {
    done_signal_.wait([&] { return done_.load(std::memory_order_acquire) >= ticket; }, kForever);
  }
  rethrow();
}

void HostStream::work() {
  log::set_thread_rank(rank_);
  worker_of = this;
  for (;;) {
    work_signal_.wait(
        [&] {
          return stop_.load(std::memory_order_relaxed) ||
                 done_.load(std::memory_order_relaxed) < put_.load(std::memory_order_acquire);
        },
        kForever);
    if (done_.load(std::memory_order_relaxed) == put_.load(std::memory_order_acquire)) return;
    run_one(true);
    done_signal_.notify();
  }
}

void HostStream::fail(std::exception_ptr error) {
  if (failed_.load(std::memory_order_relaxed)) return;
  error_ = std::move(error);
  failed_.store(true, std::memory_order_release);
}

void HostStream::rethrow() {
  if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(error_);
}

std::unique_ptr<Event> HostStream::make_event() {
  return std::make_unique<HostEvent>();
}

void HostStream::record(Event& event) {
  auto& e = static_cast<HostEvent&>(event);
  e.stream_ = mode_ == Mode::immediate ? nullptr : this;
  e.ticket_ = put_.load(std::memory_order_relaxed);
}

void HostStream::wait(Event& event) {
  auto& e = static_cast<HostEvent&>(event);
  if (!e.stream_ || e.stream_ == this) return;
  if (mode_ == Mode::immediate) {
    e.synchronize();
    return;
  }
  enqueue([other = e.stream_, ticket = e.ticket_](bool may_block) {
    if (other->done_.load(std::memory_order_acquire) >= ticket) return true;
    if (!may_block) return false;
    other->run_until(ticket);
    return true;
  });
}

void HostStream::synchronize() {
  run_until(put_.load(std::memory_order_relaxed));
}

}  // namespace ration

// Transfers by threads that read and write at a place.

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "offload/block_device.hpp"

namespace ration::offload {
namespace {

constexpr std::size_t kMostThreads = 4;  ///< a drive is busy with fewer

class Pool final : public BlockDevice {
 public:
  Pool(SwapFiles files, std::size_t tickets) : files_(std::move(files)), tickets_(tickets) {
    const std::size_t count = std::min(tickets, kMostThreads);
    for (std::size_t i = 0; i < count; ++i) threads_.emplace_back([this] { run(); });
  }
  ~Pool() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void submit(std::size_t ticket, const Transfer& transfer) override {
    const auto pieces = files_.pieces(transfer.offset, transfer.bytes);
    {
      const std::lock_guard lock(mutex_);
      tickets_[ticket] = {.left = pieces.size(), .failure = nullptr};
      for (const SwapFiles::Piece& piece : pieces)
        queue_.push_back({.ticket = ticket,
                          .way = transfer.way,
                          .piece = piece,
                          .data = transfer.data + piece.start});
    }
    changed_.notify_all();
  }

  void wait(std::size_t ticket) override {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return tickets_[ticket].left == 0; });
    if (const auto failure = std::exchange(tickets_[ticket].failure, nullptr))
      std::rethrow_exception(failure);
  }

  bool done(std::size_t ticket) override {
    const std::lock_guard lock(mutex_);
    return tickets_[ticket].left == 0;
  }

  [[nodiscard]] std::string name() const override {
    return fmt::format("{} threads, {}", threads_.size(), files_.direct() ? "direct" : "buffered");
  }

 private:
  struct Ticket {
    std::size_t left = 0;  ///< pieces
    std::exception_ptr failure;
  };
  struct Job {
    std::size_t ticket = 0;
    Transfer::Way way = Transfer::Way::read;
    SwapFiles::Piece piece;
    std::byte* data = nullptr;
  };

  // Empties the queue before it stops.
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const Job job = queue_.front();
      queue_.pop_front();
      lock.unlock();
      std::exception_ptr failure;
      try {
        const io::File& file = files_.file(job.piece.file);
        if (job.way == Transfer::Way::write) {
          file.write(job.piece.offset, {job.data, job.piece.bytes});
        } else {
          file.read(job.piece.offset, {job.data, job.piece.bytes});
        }
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      Ticket& ticket = tickets_[job.ticket];
      if (failure && !ticket.failure) ticket.failure = failure;
      if (--ticket.left == 0) done_.notify_all();
    }
  }

  const SwapFiles files_;
  std::mutex mutex_;
  std::condition_variable changed_;  ///< for the threads
  std::condition_variable done_;     ///< for the caller
  std::deque<Job> queue_;
  std::vector<Ticket> tickets_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<BlockDevice> make_pool(SwapFiles files, std::size_t tickets) {
  return std::make_unique<Pool>(std::move(files), tickets);
}

}  // namespace ration::offload

#include "comm/mpi/progress.hpp"

#include <algorithm>
#include <csignal>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>

#include "comm/mpi/error.hpp"

namespace ration {
namespace {

/// How long the thread sleeps when nothing has been done for `waited`: at first it yields, since
/// ranks may outnumber cores and MPI moves data only when it is called; then it adds little to what
/// has been waited already.
Clock::duration pause_after(Clock::duration waited) {
  constexpr std::chrono::microseconds kYield(200);
  constexpr std::chrono::microseconds kShortest(50);
  constexpr std::chrono::microseconds kLongest(1000);
  if (waited < kYield) return Clock::duration::zero();
  return std::clamp<Clock::duration>(waited / 16, kShortest, kLongest);
}

}  // namespace

Progress::Progress(MPI_Comm comm, int rank, std::size_t piece)
    : comm_(comm), rank_(rank), piece_(piece) {
  sigset_t all;  // handlers run on the program's own threads
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Progress::~Progress() {
  give_up();
  if (thread_.joinable()) thread_.join();
}

void Progress::post(std::shared_ptr<Transfer> transfer) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) {
      transfer->held.store(false);
      fail(*transfer, "MPI was given up after a failure", true);
      return;
    }
    posted_.push_back(std::move(transfer));
  }
  news_.store(true, std::memory_order_release);
  wake_.notify();
}

void Progress::withdraw(const std::shared_ptr<Transfer>& transfer) {
  // What is on its way arrives within this, unless the peer is gone or never wanted it.
  constexpr std::chrono::seconds kGrace(1);
  transfer->unwanted.store(true, std::memory_order_release);
  news_.store(true, std::memory_order_release);
  wake_.notify();
  const auto free = [&] { return !transfer->held.load(std::memory_order_acquire); };
  if (!transfer->signal.wait(free, Clock::now() + kGrace)) give_up();
}

bool Progress::stop(Deadline deadline) {
  stop_.store(true, std::memory_order_release);
  news_.store(true, std::memory_order_release);
  wake_.notify();
  if (!left_.wait([&] { return gone_.load(std::memory_order_acquire); }, deadline)) give_up();
  if (thread_.joinable()) thread_.join();
  return !give_up_.load(std::memory_order_acquire);
}

void Progress::give_up() {
  give_up_.store(true, std::memory_order_release);
  wake_.notify();
  // Every call that the thread makes returns at once; should one not, a failing rank goes on.
  constexpr std::chrono::seconds kLongest(10);
  left_.wait([&] { return gone_.load(std::memory_order_acquire); }, Clock::now() + kLongest);
}

void Progress::run() {
  prctl(PR_SET_TIMERSLACK, 1000UL);  // 1 us: sleeps are short, and the default would add 50 us
  auto moved = Clock::now();
  while (!give_up_.load(std::memory_order_acquire)) {
    if (news_.exchange(false, std::memory_order_acq_rel)) {
      {
        const std::lock_guard lock(mutex_);
        std::swap(starting_, posted_);
      }
      for (const auto& transfer : starting_) start(transfer);
      starting_.clear();
      cancel_unwanted();
      moved = Clock::now();
    }
    if (requests_.empty()) {
      if (stop_.load(std::memory_order_acquire) && !news_.load(std::memory_order_acquire)) break;
      wake_.wait([this] { return wanted(); }, Clock::now() + std::chrono::hours(1));
      continue;
    }
    const bool done = test();
    const auto now = Clock::now();
    if (done) moved = now;
    const Clock::duration pause = pause_after(now - moved);
    if (pause > Clock::duration::zero()) {
      wake_.wait([this] { return wanted(); }, now + pause);
    } else if (!done) {
      sched_yield();
    }
  }
  fail_all();
  gone_.store(true, std::memory_order_release);
  left_.notify();
}

void Progress::start(const std::shared_ptr<Transfer>& transfer) {
  std::size_t at = 0;
  do {  // nothing is a message, too
    const std::size_t bytes = std::min(piece_, transfer->bytes - at);
    const int count = static_cast<int>(bytes);
    std::byte* const data = transfer->data + at;
    MPI_Request request = MPI_REQUEST_NULL;
    const int code =
        transfer->way == Transfer::Way::send
            ? MPI_Isend(data, count, MPI_BYTE, transfer->peer, transfer->tag, comm_, &request)
            : MPI_Irecv(data, count, MPI_BYTE, transfer->peer, transfer->tag, comm_, &request);
    if (code != MPI_SUCCESS) {
      fail(*transfer, mpi_error_text(code), true);
      break;
    }
    ++transfer->requests;
    requests_.push_back(request);
    pieces_.push_back({transfer, count});
    at += bytes;
  } while (at < transfer->bytes);
  if (transfer->requests == 0) {
    transfer->held.store(false, std::memory_order_release);
    transfer->signal.notify();
  }
}

// MPI takes receives back that nothing has come for yet. A send it cannot take back.
void Progress::cancel_unwanted() {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const Transfer& transfer = *pieces_[i].transfer;
    if (transfer.way != Transfer::Way::receive || transfer.cancelled) continue;
    if (transfer.unwanted.load(std::memory_order_acquire)) MPI_Cancel(&requests_[i]);
  }
  for (const Piece& piece : pieces_) {
    if (piece.transfer->unwanted.load(std::memory_order_acquire)) piece.transfer->cancelled = true;
  }
}

bool Progress::test() {
  const int count = static_cast<int>(requests_.size());
  indices_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int done = 0;
  const int code = MPI_Testsome(count, requests_.data(), &done, indices_.data(), statuses_.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
    for (const Piece& piece : pieces_) fail(*piece.transfer, mpi_error_text(code), true);
    give_up_.store(true, std::memory_order_release);
    return false;
  }
  if (done == MPI_UNDEFINED || done == 0) return false;
  for (int i = 0; i < done; ++i) {
    MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
    if (code == MPI_SUCCESS) status.MPI_ERROR = MPI_SUCCESS;  // it is written only beside an error
    complete(static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)]), status);
  }
  // From the end, so that what takes a place is not itself to go.
  std::sort(indices_.begin(), indices_.begin() + done, std::greater<>());
  for (int i = 0; i < done; ++i) {
    const auto at = static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)]);
    requests_[at] = requests_.back();
    requests_.pop_back();
    std::swap(pieces_[at], pieces_.back());
    pieces_.pop_back();
  }
  return true;
}

void Progress::complete(std::size_t request, const MPI_Status& status) {
  const Piece& piece = pieces_[request];
  Transfer& transfer = *piece.transfer;
  if (status.MPI_ERROR != MPI_SUCCESS) {
    int kind = MPI_ERR_OTHER;
    MPI_Error_class(status.MPI_ERROR, &kind);
    fail(transfer, mpi_error_text(status.MPI_ERROR), kind != MPI_ERR_TRUNCATE);
  } else if (transfer.way == Transfer::Way::receive && !transfer.cancelled) {
    int received = 0;
    MPI_Get_count(&status, MPI_BYTE, &received);
    if (received != piece.bytes) {
      fail(transfer, fmt::format("{} bytes came instead of {}", received, piece.bytes), false);
    }
  }
  if (--transfer.requests > 0) return;
  if (transfer.state.load(std::memory_order_relaxed) == Transfer::State::moving)
    transfer.state.store(Transfer::State::done, std::memory_order_release);
  transfer.held.store(false, std::memory_order_release);
  transfer.signal.notify();
}

void Progress::fail(Transfer& transfer, std::string error, bool connection) {
  if (transfer.state.load(std::memory_order_relaxed) != Transfer::State::moving) return;
  const bool sends = transfer.way == Transfer::Way::send;
  transfer.error =
      fmt::format("rank {}: MPI, {} rank {}, tag {}: {}", rank_,
                  sends ? "sending to" : "receiving from", transfer.peer, transfer.tag, error);
  transfer.connection = connection;
  transfer.state.store(Transfer::State::failed, std::memory_order_release);
  transfer.signal.notify();
}

void Progress::fail_all() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    for (auto& transfer : posted_) pieces_.push_back({std::move(transfer), 0});
    posted_.clear();
  }
  for (const Piece& piece : pieces_) {
    fail(*piece.transfer, "MPI was given up after a failure", true);
    piece.transfer->held.store(false, std::memory_order_release);
    piece.transfer->signal.notify();
  }
  pieces_.clear();
  requests_.clear();
}

}  // namespace ration

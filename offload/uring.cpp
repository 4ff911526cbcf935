// Transfers by io_uring.

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <liburing.h>

#include <ration/error.hpp>

#include "offload/block_device.hpp"

namespace ration::offload {
namespace {

class Uring final : public BlockDevice {
 public:
  /// `ring` is set up, and is the device's from here on.
  Uring(io_uring ring, SwapFiles files, std::size_t tickets)
      : ring_(ring), files_(std::move(files)), tickets_(tickets) {}
  ~Uring() override {
    while (under_way_ > 0 && collect(true)) {
    }
    io_uring_queue_exit(&ring_);
  }
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  void submit(std::size_t ticket, const Transfer& transfer) override {
    Ticket& own = tickets_[ticket];
    own.failure = nullptr;
    own.parts.clear();
    for (const SwapFiles::Piece& piece : files_.pieces(transfer.offset, transfer.bytes))
      own.parts.push_back({.ticket = ticket,
                           .way = transfer.way,
                           .file = piece.file,
                           .offset = piece.offset,
                           .data = transfer.data + piece.start,
                           .bytes = piece.bytes});
    own.left = own.parts.size();
    for (Part& part : own.parts) enqueue(part);
    flush();
  }

  void wait(std::size_t ticket) override {
    Ticket& own = tickets_[ticket];
    while (own.left > 0) collect(true);
    if (const auto failure = std::exchange(own.failure, nullptr)) std::rethrow_exception(failure);
  }

  bool done(std::size_t ticket) override {
    while (collect(false)) {
    }
    return tickets_[ticket].left == 0;
  }

  [[nodiscard]] std::string name() const override {
    return fmt::format("io_uring, {}", files_.direct() ? "direct" : "buffered");
  }

 private:
  struct Part {
    std::size_t ticket = 0;
    Transfer::Way way = Transfer::Way::read;
    std::size_t file = 0;
    std::uint64_t offset = 0;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  struct Ticket {
    std::vector<Part> parts;
    std::size_t left = 0;
    std::exception_ptr failure;
  };

  void enqueue(Part& part) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    while (entry == nullptr) {  // the queue is full
      flush();
      entry = io_uring_get_sqe(&ring_);
    }
    constexpr std::size_t kMost = std::size_t{1} << 30;
    const auto length = static_cast<unsigned>(std::min(part.bytes, kMost));
    const int fd = files_.file(part.file).descriptor();
    if (part.way == Transfer::Way::write) {
      io_uring_prep_write(entry, fd, part.data, length, part.offset);
    } else {
      io_uring_prep_read(entry, fd, part.data, length, part.offset);
    }
    io_uring_sqe_set_data(entry, &part);
    ++under_way_;
  }

  void flush() {
    int result = 0;
    do {
      result = io_uring_submit(&ring_);
      if (result == -EAGAIN || result == -EBUSY) collect(true);
    } while (result == -EINTR || result == -EAGAIN || result == -EBUSY);
    if (result < 0)
      io::fail(files_.file(0).path().parent_path(), "io_uring: submitting transfers", -result);
  }

  // Takes one completion; false: there is none (`waiting`: it cannot be had).
  bool collect(bool waiting) {
    io_uring_cqe* completion = nullptr;
    int result = 0;
    do {
      result =
          waiting ? io_uring_wait_cqe(&ring_, &completion) : io_uring_peek_cqe(&ring_, &completion);
    } while (result == -EINTR);
    if (result < 0) {
      if (!waiting && result == -EAGAIN) return false;
      io::fail(files_.file(0).path().parent_path(), "io_uring: waiting for transfers", -result);
    }
    Part& part = *static_cast<Part*>(io_uring_cqe_get_data(completion));
    const int moved = completion->res;
    io_uring_cqe_seen(&ring_, completion);
    --under_way_;
    finish(part, moved);
    return true;
  }

  void finish(Part& part, int moved) {
    Ticket& ticket = tickets_[part.ticket];
    if (moved == -EINTR || moved == -EAGAIN)
      moved = 0;
    else if (moved <= 0) {
      const char* what = part.way == Transfer::Way::write ? "writing" : "reading";
      try {
        io::fail(files_.file(part.file).path().parent_path(),
                 fmt::format("{} {} bytes at {} of the swap file", what, part.bytes, part.offset),
                 moved == 0 ? EIO : -moved);
      } catch (...) {
        if (!ticket.failure) ticket.failure = std::current_exception();
      }
      --ticket.left;
      return;
    }
    part.offset += static_cast<std::uint64_t>(moved);
    part.data += moved;
    part.bytes -= static_cast<std::size_t>(moved);
    if (part.bytes == 0) {
      --ticket.left;
      return;
    }
    enqueue(part);
    flush();
  }

  io_uring ring_;
  const SwapFiles files_;
  std::vector<Ticket> tickets_;
  std::size_t under_way_ = 0;  ///< parts
};

}  // namespace

std::unique_ptr<BlockDevice> make_uring(SwapFiles& files, std::size_t tickets) {
  io_uring ring = {};
  constexpr unsigned kEntries = 64;
  if (io_uring_queue_init(kEntries, &ring, 0) < 0) return nullptr;  // forbidden, or not known
  return std::make_unique<Uring>(ring, std::move(files), tickets);
}

}  // namespace ration::offload

#pragma once
// One TCP connection of the star. Frames are sent by whoever has one, at once and without waiting;
// what the kernel does not take yet the io thread sends later. Only the io thread reads.

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include <asio/ip/tcp.hpp>

#include "control/tcp/frame.hpp"
#include "core/signal.hpp"

namespace ration::tcp {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct End {
    enum class Kind {
      closed,
      unreachable,  // the kernel has given the peer up
      unreadable,   // the peer has sent what cannot be read
    };
    Kind kind = Kind::closed;
    std::string why;
  };
  /// Called on the io thread. May close the connection or give it another owner.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void frame(Connection& connection, Frame&& frame) = 0;
    /// Once; nothing comes any more.
    virtual void ended(Connection& connection, const End& end) = 0;
  };

  /// Takes a connected socket. `sent` counts bytes, `changed` is notified when all is sent.
  Connection(asio::ip::tcp::socket socket, FrameDecoder decoder, std::span<std::byte> scratch,
             std::atomic<std::uint64_t>& sent, Signal& changed);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // On the io thread, or before it runs.
  void own(Owner& owner, int rank) { owner_ = &owner, rank_ = rank; }
  void start();
  /// Accepts frames as long as a rank's.
  void trust() { decoder_.allow(kMostOfRank); }
  /// No owner is called any more.
  void close();
  [[nodiscard]] std::string address() const;

  /// The peer's number in the job, -1 while it has none.
  [[nodiscard]] int rank() const { return rank_; }

  // On any thread.
  void send(const SharedFrame& frame);
  /// Nothing will be sent after what has been.
  void finish();
  /// Nothing waits to be sent, or it never can be.
  [[nodiscard]] bool flushed() const;
  [[nodiscard]] bool ended() const { return ended_.load(std::memory_order_acquire); }
  /// When the peer last said something.
  [[nodiscard]] Deadline heard() const;
  /// As though it had said something now.
  void pardon();

 private:
  void wait_to_read();
  void read();
  void end(const End& end);
  void wait_to_write();
  void write();  // under the mutex

  asio::ip::tcp::socket socket_;
  FrameDecoder decoder_;
  const std::span<std::byte> scratch_;
  Owner* owner_ = nullptr;
  int rank_ = -1;
  bool closed_ = false;
  std::atomic<bool> ended_{false};
  std::atomic<Clock::rep> heard_;

  std::atomic<std::uint64_t>& sent_;
  Signal& changed_;
  mutable std::mutex mutex_;  // guards what follows
  int descriptor_;            // -1 once closed
  std::deque<SharedFrame> outbox_;
  std::size_t written_ = 0;  // of the first
  bool waiting_ = false;     // until the kernel takes more
  bool finishing_ = false;
  bool broken_ = false;  // what is written is lost; reading will find out why
};

/// Options of every connection: sent at once, kept alive, not inherited by programs that are run.
void prepare(asio::ip::tcp::socket& socket);

}  // namespace ration::tcp

#include "control/tcp/connection.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/post.hpp>

#include <ration/error.hpp>

#include "core/timeout.hpp"

namespace ration::tcp {
namespace {

Clock::rep now() {
  return Clock::now().time_since_epoch().count();
}

Connection::End end_by(const asio::error_code& error) {
  const bool unreachable =
      error == asio::error::timed_out || error == asio::error::host_unreachable ||
      error == asio::error::network_unreachable || error == asio::error::network_down;
  using Kind = Connection::End::Kind;
  return {unreachable ? Kind::unreachable : Kind::closed, error.message()};
}

}  // namespace

void prepare(asio::ip::tcp::socket& socket) {
  asio::error_code ignored;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  socket.native_non_blocking(true, ignored);
  const int descriptor = socket.native_handle();
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  // The kernel gives a peer up no sooner than we would: a cable may come back.
  constexpr std::int64_t kLongest = 24 * 3600 * 1000;
  const auto patience = static_cast<int>(
      std::clamp<std::int64_t>(operation_timeout().count() * 5 / 4, 2000, kLongest));
  const int seconds = 10;
  setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof patience);
  setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
  setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
}

Connection::Connection(asio::ip::tcp::socket socket, FrameDecoder decoder,
                       std::span<std::byte> scratch, std::atomic<std::uint64_t>& sent,
                       Signal& changed)
    : socket_(std::move(socket)),
      decoder_(std::move(decoder)),
      scratch_(scratch),
      heard_(now()),
      sent_(sent),
      changed_(changed),
      descriptor_(socket_.native_handle()) {
  prepare(socket_);
}

Connection::~Connection() {
  close();
}

void Connection::start() {
  wait_to_read();
}

std::string Connection::address() const {
  asio::error_code error;
  const auto endpoint = socket_.remote_endpoint(error);
  return error ? "a closed connection"
               : fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
}

Deadline Connection::heard() const {
  return Deadline(Clock::duration(heard_.load(std::memory_order_relaxed)));
}

void Connection::pardon() {
  heard_.store(now(), std::memory_order_relaxed);
}

void Connection::wait_to_read() {
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     [self = shared_from_this()](const asio::error_code& error) {
                       if (self->closed_) return;
                       if (error) return self->end(end_by(error));
                       self->read();
                     });
}

void Connection::read() {
  constexpr int kTurns = 16;  // then others may read, too
  for (int turn = 0; turn < kTurns; ++turn) {
    asio::error_code error;
    const std::size_t size =
        socket_.read_some(asio::buffer(scratch_.data(), scratch_.size()), error);
    if (error == asio::error::would_block) break;
    if (error) return end(end_by(error));
    pardon();
    std::span<const std::byte> input(scratch_.data(), size);
    try {
      while (auto frame = decoder_.next(input)) {
        owner_->frame(*this, std::move(*frame));
        if (closed_) return;
      }
    } catch (const CommunicationError& e) {
      return end({End::Kind::unreadable, e.what()});
    }
    if (size < scratch_.size()) break;
  }
  wait_to_read();
}

void Connection::end(const End& end) {
  if (ended_.exchange(true)) return;
  {
    const std::lock_guard lock(mutex_);
    broken_ = true;
    outbox_.clear();
  }
  owner_->ended(*this, end);
  changed_.notify();
}

void Connection::close() {
  closed_ = true;
  ended_.store(true, std::memory_order_release);
  {
    const std::lock_guard lock(mutex_);
    descriptor_ = -1;
    broken_ = true;
    outbox_.clear();
  }
  asio::error_code ignored;
  socket_.close(ignored);
  changed_.notify();
}

void Connection::send(const SharedFrame& frame) {
  sent_.fetch_add(frame->size(), std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  if (broken_ || finishing_) return;
  outbox_.push_back(frame);
  if (!waiting_) write();
}

void Connection::write() {
  while (!outbox_.empty() && !broken_) {
    const Bytes& bytes = *outbox_.front();
    const ssize_t size = ::send(descriptor_, bytes.data() + written_, bytes.size() - written_,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      waiting_ = true;
      asio::post(socket_.get_executor(), [self = shared_from_this()] { self->wait_to_write(); });
      return;
    }
    if (size < 0) {
      broken_ = true;
      outbox_.clear();
      break;
    }
    written_ += static_cast<std::size_t>(size);
    if (written_ == bytes.size()) {
      outbox_.pop_front();
      written_ = 0;
    }
  }
  if (finishing_ && descriptor_ >= 0) ::shutdown(descriptor_, SHUT_WR);
}

void Connection::wait_to_write() {
  if (closed_) return;
  socket_.async_wait(asio::ip::tcp::socket::wait_write,
                     [self = shared_from_this()](const asio::error_code&) {
                       {
                         const std::lock_guard lock(self->mutex_);
                         self->waiting_ = false;
                         if (!self->broken_) self->write();
                       }
                       self->changed_.notify();
                     });
}

void Connection::finish() {
  const std::lock_guard lock(mutex_);
  if (finishing_) return;
  finishing_ = true;
  if (!waiting_ && !broken_) write();
}

bool Connection::flushed() const {
  const std::lock_guard lock(mutex_);
  return outbox_.empty();
}

}  // namespace ration::tcp

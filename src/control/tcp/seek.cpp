#include "control/tcp/seek.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <asio/buffer.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>

#include <ration/error.hpp>

#include "control/tcp/connection.hpp"
#include "core/log.hpp"
#include "core/timeout.hpp"

namespace ration::tcp {
namespace {

using namespace std::chrono_literals;

// An answer that does not come may be a stranger's who listens and says nothing, or a network that
// swallows packets: a short patience at first, a longer one each time round.
constexpr auto kFirstPatience = 1s;
constexpr auto kMostPatience = 16s;
constexpr auto kFirstPause = 10ms;
constexpr auto kMostPause = 500ms;

class Attempt {
 public:
  Attempt(const Meeting& meeting, Deadline deadline)
      : meeting_(meeting), socket_(context_), deadline_(deadline) {}

  /// Who answers there, or what went wrong.
  std::variant<Welcome, std::string> try_at(const asio::ip::tcp::endpoint& endpoint,
                                            std::atomic<std::uint64_t>& sent) {
    asio::error_code error = run([&](auto done) { socket_.async_connect(endpoint, done); });
    if (error) return error.message();
    prepare(socket_);
    const SharedFrame hello = encode(Hello{.token = TokenHash::of(meeting_.token),
                                           .rank = meeting_.rank,
                                           .size = meeting_.size,
                                           .process = Process::self()});
    error = run([&](auto done) {
      asio::async_write(socket_, asio::buffer(hello->data(), hello->size()),
                        [done](const asio::error_code& e, std::size_t) { done(e); });
    });
    if (error) return error.message();
    sent += hello->size();
    return answer();
  }

  int release() { return socket_.release(); }

 private:
  std::variant<Welcome, std::string> answer() {
    constexpr std::size_t kMostOfAnswer = 4096;
    FrameDecoder decoder(kMostOfAnswer);
    std::vector<std::byte> bytes;
    for (;;) {
      bytes.resize(decoder.wanted());  // and no more: what follows belongs to the connection
      const asio::error_code error = run([&](auto done) {
        asio::async_read(socket_, asio::buffer(bytes.data(), bytes.size()),
                         [done](const asio::error_code& e, std::size_t) { done(e); });
      });
      if (error) return "connected, then " + error.message();
      std::span<const std::byte> input(bytes);
      try {
        const auto frame = decoder.next(input);
        if (frame) return read(*frame);
      } catch (const CommunicationError&) {
        return "something that is no job of ration's";
      }
    }
  }

  std::variant<Welcome, std::string> read(const Frame& frame) {
    if (frame.kind == FrameKind::refusal) {
      auto refusal = decode<Refusal>(frame);
      if (refusal.magic == kMagic && refusal.final) throw InvalidArgument(refusal.text);
      return std::move(refusal.text);
    }
    auto welcome = decode<Welcome>(frame);
    if (welcome.magic != kMagic || welcome.token != TokenHash::of(meeting_.token))
      return "another job";
    return welcome;
  }

  // Runs one operation to its end, or to the deadline.
  template <class Start>
  asio::error_code run(const Start& start) {
    std::optional<asio::error_code> result;
    start([&result](const asio::error_code& error) { result = error; });
    context_.restart();
    context_.run_until(deadline_);
    if (result) return *result;
    asio::error_code ignored;
    socket_.close(ignored);
    context_.restart();
    context_.run();  // the handler, which holds on to `result`
    return asio::error::timed_out;
  }

  const Meeting& meeting_;
  asio::io_context context_{1};
  asio::ip::tcp::socket socket_;
  const Deadline deadline_;
};

std::string place(const std::string& host, std::uint16_t port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

}  // namespace

Found seek(const Meeting& meeting, std::atomic<std::uint64_t>& sent) {
  asio::io_context context(1);
  const auto timeout = operation_timeout();
  const Deadline deadline = Clock::now() + timeout;
  std::chrono::milliseconds patience = kFirstPatience;
  std::chrono::milliseconds pause = kFirstPause;
  std::string last = "nothing was tried";
  do {
    for (const std::string& host : meeting.hosts) {
      for (const std::uint16_t port : meeting.ports) {
        asio::error_code error;
        asio::ip::tcp::resolver resolver(context);
        const auto found =
            resolver.resolve(host, std::to_string(port), asio::ip::resolver_base::flags(), error);
        if (error) last = fmt::format("{}: {}", place(host, port), error.message());
        for (const auto& entry : found) {
          if (Clock::now() >= deadline) break;
          Attempt attempt(meeting, std::min(deadline, Clock::now() + patience));
          auto answer = attempt.try_at(entry.endpoint(), sent);
          if (auto* welcome = std::get_if<Welcome>(&answer))
            return {attempt.release(), entry.endpoint().protocol() == asio::ip::tcp::v6(),
                    std::move(welcome->process)};
          last = fmt::format("{}: {}", place(host, port), std::get<std::string>(answer));
          log::debug("control: looking for rank 0 at {}", last);
        }
      }
    }
    // Asleep without a condition: there is nothing here that rank 0's start could wake.
    std::this_thread::sleep_until(std::min(deadline, Clock::now() + pause));
    patience = std::min<std::chrono::milliseconds>(patience * 2, kMostPatience);
    pause = std::min<std::chrono::milliseconds>(pause * 2, kMostPause);
  } while (Clock::now() < deadline);
  throw Timeout(fmt::format(
      "rank {}: rank 0 was not found within {:.1f} s at {} (port{} {}); the last answer was {}; "
      "is rank 0 running, and can its host be reached from here?",
      meeting.rank, std::chrono::duration<double>(timeout).count(), fmt::join(meeting.hosts, ", "),
      meeting.ports.size() == 1 ? "" : "s", fmt::join(meeting.ports, ", "), last));
}

}  // namespace ration::tcp

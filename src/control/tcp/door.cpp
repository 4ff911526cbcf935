#include "control/tcp/door.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <asio/error.hpp>

#include <ration/error.hpp>

#include "core/log.hpp"

namespace ration::tcp {
namespace {

using namespace std::chrono_literals;

constexpr auto kTimeToSpeak = 5s;
constexpr std::size_t kMostGuests = 256;
constexpr rlim_t kOtherFiles = 128;  // what the program itself may want

}  // namespace

void allow_connections(int ranks) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (limit.rlim_cur < limit.rlim_max) {
    rlimit raised = limit;
    raised.rlim_cur = raised.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  const rlim_t needed = static_cast<rlim_t>(ranks) + kMostGuests + kOtherFiles;
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < needed) {
    throw Error(
        fmt::format("rank 0: {} ranks need {} open files, the limit is {}; raise it "
                    "(ulimit -n) where rank 0 starts",
                    ranks, needed, limit.rlim_cur));
  }
}

Door::Door(Listener& listener, IoThread& io, int size, const std::string& token, Host& host,
           std::atomic<std::uint64_t>& sent, Signal& changed)
    : io_(io),
      size_(size),
      token_(TokenHash::of(token)),
      host_(host),
      sent_(sent),
      changed_(changed),
      acceptor_(io.context(), listener.ipv6() ? asio::ip::tcp::v6() : asio::ip::tcp::v4(),
                listener.release()),
      pause_(io.context()) {}

void Door::open() {
  accept();
}

void Door::accept() {
  acceptor_.async_accept([this](const asio::error_code& error, asio::ip::tcp::socket socket) {
    if (closed_ || error == asio::error::operation_aborted) return;
    if (!error) {
      admit(std::move(socket));
      return accept();
    }
    if (error == asio::error::connection_aborted) return accept();
    // No more files, most likely.
    if (drop_oldest()) return accept();
    pause_.expires_after(50ms);
    pause_.async_wait([this](const asio::error_code& ended) {
      if (!ended && !closed_) accept();
    });
  });
}

void Door::admit(asio::ip::tcp::socket socket) {
  if (guests_.size() >= kMostGuests) drop_oldest();
  auto connection = std::make_shared<Connection>(std::move(socket), FrameDecoder(kMostOfStranger),
                                                 io_.scratch(), sent_, changed_);
  connection->own(*this, -1);
  connection->start();
  guests_.push_back({std::move(connection), Clock::now() + kTimeToSpeak, std::nullopt, false});
}

void Door::sweep() {
  const auto now = Clock::now();
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    const auto current = guest++;
    if (!current->hello && current->speak_until < now) drop(current);
  }
}

// Whoever was welcomed is a rank of ours, on its way to its seat.
bool Door::drop_oldest() {
  const auto oldest =
      std::find_if(guests_.begin(), guests_.end(), [](const Guest& guest) { return !guest.hello; });
  if (oldest == guests_.end()) return false;
  drop(oldest);
  return true;
}

void Door::drop(Guests::iterator guest) {
  if (!guest->refused)
    log::debug("control: {} said nothing of use and was dropped", guest->connection->address());
  guest->connection->close();
  guests_.erase(guest);
}

void Door::close() {
  closed_ = true;
  asio::error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
  for (const Guest& guest : guests_) guest.connection->close();
  guests_.clear();
  coming_ = 0;
}

Door::Guests::iterator Door::find(const Connection& connection) {
  return std::find_if(guests_.begin(), guests_.end(),
                      [&](const Guest& guest) { return guest.connection.get() == &connection; });
}

void Door::frame(Connection& connection, Frame&& frame) {
  const auto guest = find(connection);
  if (guest == guests_.end() || guest->refused) return;
  if (!guest->hello) return judge(*guest, decode<Hello>(frame));
  decode<Seated>(frame);
  connection.trust();
  const Guest seated = std::move(*guest);
  guests_.erase(guest);
  host_.seat(*seated.hello, seated.connection);
  --coming_;
}

void Door::judge(Guest& guest, const Hello& hello) {
  if (hello.magic != kMagic) throw CommunicationError("no hello of ours");
  if (hello.version != kVersion)
    return refuse(guest, false, fmt::format("a job of another version ({}) of ration", kVersion));
  if (hello.token != token_) return refuse(guest, false, "another job");
  if (hello.size != size_) {
    std::string text = fmt::format(
        "rank {} {} was started for a job of {} rank{}, rank 0 {} for one of {}; start all with "
        "the same number of ranks",
        hello.rank, hello.process.text(), hello.size, hello.size == 1 ? "" : "s", process_.text(),
        size_);
    refuse(guest, true, text);
    return host_.wrong_size(text);
  }
  if (hello.rank < 1 || hello.rank >= size_) {
    return refuse(guest, true,
                  fmt::format("rank {} {}: the ranks of this job are 0 to {}", hello.rank,
                              hello.process.text(), size_ - 1));
  }
  if (const auto why = host_.occupied(hello.rank)) return refuse(guest, true, *why);
  for (const Guest& other : guests_) {
    if (other.hello && other.hello->rank == hello.rank)
      return refuse(guest, false, fmt::format("another rank {}, on its way in", hello.rank));
  }
  guest.hello = hello;
  ++coming_;
  guest.connection->send(encode(Welcome{.token = token_, .process = process_}));
}

// The connection stays until the other side has read that and closed it, or its time is over.
void Door::refuse(Guest& guest, bool final, std::string text) {
  log::debug("control: {} was refused: {}", guest.connection->address(), text);
  guest.refused = true;
  guest.connection->send(encode(Refusal{.final = final, .text = std::move(text)}));
  guest.connection->finish();
}

void Door::ended(Connection& connection, const Connection::End& end) {
  const auto guest = find(connection);
  if (guest == guests_.end()) return;
  if (!guest->refused) log::debug("control: {} was not let in: {}", connection.address(), end.why);
  if (guest->hello) --coming_;
  connection.close();
  guests_.erase(guest);
  changed_.notify();
}

}  // namespace ration::tcp

#pragma once
// Rank 0's door while the job meets: lets the job's ranks in and keeps strangers out, who may be
// anybody and say anything, or nothing.

#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>

#include "control/tcp/connection.hpp"
#include "control/tcp/io_thread.hpp"
#include "control/tcp/protocol.hpp"
#include "control/tcp/star.hpp"

namespace ration::tcp {

/// All of it on the io thread, but for the constructor.
class Door final : private Connection::Owner {
 public:
  class Host {
   public:
    virtual ~Host() = default;
    /// Why a rank of the job cannot have its seat, when it has one already.
    virtual std::optional<std::string> occupied(int rank) = 0;
    virtual void seat(const Hello& hello, std::shared_ptr<Connection> connection) = 0;
    /// A process of this job believes in another size.
    virtual void wrong_size(const std::string& text) = 0;
  };

  Door(Listener& listener, IoThread& io, int size, const std::string& token, Host& host,
       std::atomic<std::uint64_t>& sent, Signal& changed);

  void open();
  /// Sends away whoever has said nothing for too long.
  void sweep();
  void close();

  /// How many have been welcomed and are on their way to their seats. Any thread.
  [[nodiscard]] int coming() const { return coming_.load(); }

 private:
  // Who has come in and has no seat yet.
  struct Guest {
    std::shared_ptr<Connection> connection;
    Deadline speak_until;
    std::optional<Hello> hello;  // once welcomed
    bool refused = false;
  };
  using Guests = std::list<Guest>;

  void accept();
  void admit(asio::ip::tcp::socket socket);
  void drop(Guests::iterator guest);
  bool drop_oldest();
  void judge(Guest& guest, const Hello& hello);
  void refuse(Guest& guest, bool final, std::string text);
  void frame(Connection& connection, Frame&& frame) override;
  void ended(Connection& connection, const Connection::End& end) override;
  Guests::iterator find(const Connection& connection);

  IoThread& io_;
  const int size_;
  const TokenHash token_;
  const Process process_ = Process::self();
  Host& host_;
  std::atomic<std::uint64_t>& sent_;
  Signal& changed_;
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  Guests guests_;  // in the order in which they came
  std::atomic<int> coming_{0};
  bool closed_ = false;
};

/// As many open files as the system allows. Throws Error when they are too few for `ranks`.
void allow_connections(int ranks);

}  // namespace ration::tcp

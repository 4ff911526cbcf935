// How gloo's ranks find each other, and what they make of strangers and of each other's mistakes.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ration/error.hpp>

#include "comm/gloo/signal_mask.hpp"
#include "comm/local_address.hpp"
#include "messages/gloo_ranks.hpp"
#include "messages/transport_tests.hpp"
#include "support/deadline.hpp"

namespace ration::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The numbers of this process's sockets.
std::set<std::string> own_sockets() {
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:["))
      inodes.insert(target.substr(8, target.size() - 9));  // within the brackets
  }
  return inodes;
}

/// The IPv4 ports that this process listens at.
std::set<std::uint16_t> listening_ports() {
  const std::set<std::string> own = own_sockets();
  std::set<std::uint16_t> ports;
  std::ifstream file("/proc/self/net/tcp");
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream stream(line);
    const std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
    constexpr std::size_t kLocal = 1;
    constexpr std::size_t kState = 3;
    constexpr std::size_t kInode = 9;
    if (words.size() <= kInode || words[kState] != "0A" || !own.contains(words[kInode])) continue;
    ports.insert(static_cast<std::uint16_t>(std::stoul(words[kLocal].substr(9), nullptr, 16)));
  }
  return ports;
}

/// Who say something at every port that was opened since they were made.
class Strangers {
 public:
  explicit Strangers(std::string words) : words_(std::move(words)), before_(listening_ports()) {}
  ~Strangers() {
    for (const int fd : fds_) close(fd);
  }
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;

  void visit() {
    for (const std::uint16_t port : listening_ports()) {
      if (before_.contains(port)) continue;
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(port);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      fds_.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (connect(fds_.back(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
          !words_.empty()) {
        send(fds_.back(), words_.data(), words_.size(), MSG_NOSIGNAL);
      }
    }
  }
  [[nodiscard]] std::size_t visits() const { return fds_.size(); }

 private:
  const std::string words_;
  const std::set<std::uint16_t> before_;
  std::vector<int> fds_;
};

/// Lets strangers in when every rank listens for the first time, and none has connected.
class WithStrangers final : public Control {
 public:
  WithStrangers(std::unique_ptr<Control> inner, Strangers& strangers)
      : inner_(std::move(inner)), strangers_(strangers) {}

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  void fold(std::string_view channel, const Bytes& record, const Combine& combine, Bytes& result,
            std::string_view what) override {
    const auto visited = [&](std::span<const Bytes> records, Bytes& combined) {
      if (what == "gloo: addresses" && strangers_.visits() == 0) strangers_.visit();
      combine(records, combined);
    };
    inner_->fold(channel, record, visited, result, what);
  }
  void abort(std::string_view reason) override { inner_->abort(reason); }
  [[nodiscard]] std::optional<std::string> aborted() const override { return inner_->aborted(); }

 private:
  const std::unique_ptr<Control> inner_;
  Strangers& strangers_;
};

void connect_beside_strangers(const std::string& words) {
  auto controls = make_in_process_controls(3);
  Strangers strangers(words);
  run_ranks(3, [&](int rank) {
    WithStrangers control(std::move(controls[static_cast<std::size_t>(rank)]), strangers);
    const auto messages = make_gloo(control);
    for (int peer = 0; peer < 3; ++peer) {
      if (peer != rank) exchange(*messages, peer, 7);
    }
  });
  EXPECT_GE(strangers.visits(), 6U);  // one for each end
}

TEST(GlooConnect, AStrangerWhoSaysNothingChangesNothing) {
  connect_beside_strangers("");
}

TEST(GlooConnect, AStrangerWhoTalksChangesNothing) {
  connect_beside_strangers("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + std::string(2000, 'x'));
}

std::ptrdiff_t entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

TEST(GlooConnect, TheEndLeavesNothingBehind) {
  const auto once = [] {
    with_gloo(3, [](Messages& messages, int rank) {
      std::uint64_t value = 0;
      messages.receive((rank + 1) % 3, 1, &value, sizeof value);  // and gives it up
      for (int peer = 0; peer < 3; ++peer) {
        if (peer != rank) exchange(messages, peer, 2);
      }
    });
  };
  once();
  const auto descriptors = entries("/proc/self/fd");
  const auto threads = entries("/proc/self/task");
  for (int i = 0; i < 5; ++i) once();
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(entries("/proc/self/task"), threads);
}

class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

TEST(GlooConnect, AnInterfaceMayBeNamed) {
  const Environment named("RATION_INTERFACE", "lo");
  with_gloo(3, [](Messages& messages, int rank) {
    for (int peer = 0; peer < 3; ++peer) {
      if (peer != rank) exchange(messages, peer, 1);
    }
  });
}

TEST(GlooConnect, AnUnknownInterfaceIsAnErrorOfEveryRank) {
  const Environment named("RATION_INTERFACE", "nowhere0");
  const auto controls = make_in_process_controls(2);
  run_ranks(2, [&](int rank) {
    try {
      make_gloo(*controls[static_cast<std::size_t>(rank)]);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0"), HasSubstr("\"nowhere0\""),
                                      HasSubstr("lo"), HasSubstr("RATION_INTERFACE")));
    }
  });
}

TEST(GlooConnect, ARankThatNeverComesIsATimeout) {
  const WithTimeout timeout(std::chrono::milliseconds(200));
  const auto controls = make_in_process_controls(2);
  EXPECT_THROW(make_gloo(*controls[0]), Timeout);
}

/// Has its rank believe in another job.
class OfAnotherJob final : public Control {
 public:
  explicit OfAnotherJob(std::unique_ptr<Control> inner) : inner_(std::move(inner)) {}
  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  void fold(std::string_view channel, const Bytes& record, const Combine& combine, Bytes& result,
            std::string_view what) override {
    inner_->fold(channel, record, combine, result, what);
    if (what == "gloo: hosts") result.front() ^= std::byte{1};  // of the token
  }
  void abort(std::string_view reason) override { inner_->abort(reason); }
  [[nodiscard]] std::optional<std::string> aborted() const override { return inner_->aborted(); }

 private:
  const std::unique_ptr<Control> inner_;
};

TEST(GlooConnect, WhoDoesNotKnowTheJobIsNoPeer) {
  auto controls = make_in_process_controls(2);
  run_ranks(2, [&](int rank) {
    std::unique_ptr<Control> control = std::move(controls[static_cast<std::size_t>(rank)]);
    if (rank == 1) control = std::make_unique<OfAnotherJob>(std::move(control));
    try {
      make_gloo(*control);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const CommunicationError& error) {
      EXPECT_THAT(error.what(), HasSubstr("a stranger answered for rank 1"));
    }
  });
}

TEST(WithoutSigpipe, AClosedConnectionIsAnErrorAlone) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  {
    const WithoutSigpipe guard;
    EXPECT_EQ(write(ends[1], "x", 1), -1);
    EXPECT_EQ(errno, EPIPE);
  }
  close(ends[1]);  // the end of the guard has let no signal through
}

/// Fails its rank between the exchange of addresses and its use.
class FailsBeforeItConnects final : public Control {
 public:
  explicit FailsBeforeItConnects(std::unique_ptr<Control> inner) : inner_(std::move(inner)) {}
  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  void fold(std::string_view channel, const Bytes& record, const Combine& combine, Bytes& result,
            std::string_view what) override {
    inner_->fold(channel, record, combine, result, what);
    if (what != "gloo: addresses") return;
    inner_->abort("rank 1: gone");
    throw InvalidArgument("gone");
  }
  void abort(std::string_view reason) override { inner_->abort(reason); }
  [[nodiscard]] std::optional<std::string> aborted() const override { return inner_->aborted(); }

 private:
  const std::unique_ptr<Control> inner_;
};

TEST(GlooConnect, AnAbortEndsTheWaitForAPeer) {
  auto controls = make_in_process_controls(2);
  FailsBeforeItConnects failing(std::move(controls[1]));
  const auto start = Clock::now();
  run_ranks(2, [&](int rank) {
    if (rank == 0) {
      EXPECT_THROW(make_gloo(*controls[0]), RemoteError);
    } else {
      EXPECT_THROW(make_gloo(failing), InvalidArgument);
    }
  });
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
}

TEST(LocalAddress, IsFoundTowardsAHostAndOfAnInterface) {
  EXPECT_EQ(address_of_interface("lo"), "127.0.0.1");
  EXPECT_EQ(address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_TRUE(is_loopback("127.0.0.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("10.77.0.1"));
  EXPECT_TRUE(is_interface("lo"));
  EXPECT_EQ(network_id(), network_id());
  EXPECT_THROW(address_of_interface("nowhere0"), InvalidArgument);
  EXPECT_THROW(address_towards("256.1.1.1.invalid"), InvalidArgument);
}

}  // namespace
}  // namespace ration::test

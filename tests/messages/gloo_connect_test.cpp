// How gloo's ranks find each other, and what they make of strangers and of each other's mistakes.

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ration/error.hpp>

#include "comm/gloo/local_address.hpp"
#include "messages/gloo_ranks.hpp"
#include "messages/transport_tests.hpp"
#include "support/deadline.hpp"

namespace ration::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The IPv4 ports that some process of this network namespace listens at.
std::set<std::uint16_t> listening_ports() {
  std::set<std::uint16_t> ports;
  std::ifstream file("/proc/self/net/tcp");
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string number;
    std::string local;
    std::string remote;
    std::string state;
    words >> number >> local >> remote >> state;
    if (state == "0A")
      ports.insert(static_cast<std::uint16_t>(std::stoul(local.substr(9), nullptr, 16)));
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

TEST(GlooMessage, SizesThatDifferWaitForTheDeadline) {
  with_gloo(2, [](Messages& messages, int rank) {
    Data memory(100);
    const auto message = rank == 0 ? messages.send(1, 5, memory.data(), 100)
                                   : messages.receive(0, 5, memory.data(), 60);
    EXPECT_FALSE(message->wait(Clock::now() + std::chrono::milliseconds(100)));
    exchange(messages, 1 - rank, 6);
  });
}

/// `size` bytes of addresses over few bytes of memory, that repeat.
class Repeated {
 public:
  explicit Repeated(std::size_t size) : size_(size) {
    const int fd = memfd_create("ration test", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, kPart), 0);
    base_ = static_cast<std::uint8_t*>(
        mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (std::size_t at = 0; at < size; at += kPart) {
      EXPECT_NE(mmap(base_ + at, std::min<std::size_t>(kPart, size - at), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_FIXED, fd, 0),
                MAP_FAILED);
    }
    close(fd);
  }
  ~Repeated() { munmap(base_, size_); }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;
  [[nodiscard]] std::uint8_t* data() const { return base_; }

 private:
  static constexpr off_t kPart = off_t{64} << 20;
  std::size_t size_;
  std::uint8_t* base_;
};

TEST(GlooMessage, SizesBeyondTwoGibibytesArrive) {
  with_gloo(2, [](Messages& messages, int rank) {
    constexpr std::size_t kSize = (std::size_t{1} << 31) + 4099;
    const Repeated memory(kSize);
    std::unique_ptr<Message> message;
    if (rank == 0) {
      memory.data()[kSize - 1] = 77;
      message = messages.send(1, 5, memory.data(), kSize);
    } else {
      message = messages.receive(0, 5, memory.data(), kSize);
    }
    ASSERT_TRUE(message->wait(soon()));
    EXPECT_EQ(memory.data()[kSize - 1], 77);
    exchange(messages, 1 - rank, 6);
  });
}

/// A large message that one end gives up when part of it is on its way; `ours` is that end's
/// memory, which must be left alone, the peer's end completes.
void give_up_halfway(bool sends) {
  with_gloo(2, [&](Messages& messages, int rank) {
    constexpr std::size_t kSize = std::size_t{256} << 20;
    Data memory(kSize, rank == 0 ? 1 : 2);
    const bool sender = (rank == 0) == sends;
    auto message = sender ? messages.send(1 - rank, 5, memory.data(), kSize)
                          : messages.receive(1 - rank, 5, memory.data(), kSize);
    if (rank == 0) {
      exchange(messages, 1, 6);  // the peer has posted its end
      message.reset();
      const Data before(memory);
      exchange(messages, 1, 7);
      EXPECT_TRUE(memory == before);
    } else {
      exchange(messages, 0, 6);
      exchange(messages, 0, 7);
      message->wait(Clock::now() + std::chrono::seconds(2));
    }
    for (int i = 0; i < 3; ++i) exchange(messages, 1 - rank, 8);
  });
}

TEST(GlooMessage, AReceiveGivenUpHalfwayLeavesItsMemoryAndOtherTagsAlone) {
  give_up_halfway(false);
}

TEST(GlooMessage, ASendGivenUpHalfwayLeavesOtherTagsAlone) {
  give_up_halfway(true);
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

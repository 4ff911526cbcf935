// gloo between two processes, one of which ends. Rank 1 is this program again, running one test
// that does rank 1's part where the environment says so.

#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/gloo/gloo.hpp"
#include "messages/halfway.hpp"
#include "messages/socket_control.hpp"
#include "messages/transport_tests.hpp"

namespace ration::test {
namespace {

constexpr const char* kSocket = "RATION_TEST_SOCKET";
constexpr int kChildFd = 3;

/// Rank 1, a process.
class Child {
 public:
  /// Runs the test that is running, again.
  Child() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    fd_ = ends[0];
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::string filter =
        std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name();
    std::string program = "/proc/self/exe";
    std::string variable = std::string(kSocket) + "=1";
    char* arguments[] = {program.data(), filter.data(), nullptr};
    std::vector<char*> environment;
    for (char** at = environ; *at; ++at) {
      if (!std::string_view(*at).starts_with("GTEST_")) environment.push_back(*at);  // all of it
    }
    environment.push_back(variable.data());
    environment.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], kChildFd);
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environment.data()),
              0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
  }
  ~Child() {
    kill();
    wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] int fd() const { return fd_; }
  void stop() const { ::kill(pid_, SIGSTOP); }
  void go_on() const { ::kill(pid_, SIGCONT); }
  void kill() const {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
  }
  int wait() {
    if (pid_ > 0) waitpid(pid_, &status_, 0);
    pid_ = -1;
    return status_;
  }

 private:
  int fd_ = -1;
  pid_t pid_ = -1;
  int status_ = 0;
};

/// In rank 1's process: its messages; elsewhere nothing.
std::shared_ptr<Messages> rank_1() {
  if (!std::getenv(kSocket)) return nullptr;
  SocketControl control(kChildFd, 1);
  return make_gloo(control);
}

std::shared_ptr<Messages> rank_0(const Child& child) {
  SocketControl control(child.fd(), 0);
  return make_gloo(control);
}

template <class Function>
std::string lost(const Function& function) {
  try {
    function();
  } catch (const ConnectionLost& error) {
    EXPECT_EQ(error.peer(), 1);
    return error.what();
  }
  ADD_FAILURE() << "no connection was lost";
  return {};
}

using testing::HasSubstr;

TEST(GlooProcess, APeerThatIsKilledIsNamedAtOnce) {
  if (const auto messages = rank_1()) {
    std::uint8_t go = 0;
    messages->receive(0, 1, &go, 1)->wait(soon());
    raise(SIGKILL);
  }
  Child child;
  const auto messages = rank_0(child);
  Data memory(1 << 20);
  const auto receive = messages->receive(1, 2, memory.data(), memory.size());
  const auto send = messages->send(1, 3, memory.data(), memory.size());
  const std::uint8_t go = 1;
  ASSERT_TRUE(messages->send(1, 1, &go, 1)->wait(soon()));
  child.wait();
  const auto start = Clock::now();
  EXPECT_THAT(lost([&] { receive->wait(soon()); }), HasSubstr("rank 0: connection to rank 1 lost"));
  lost([&] { receive->wait(kPast); });
  lost([&] { send->wait(soon()); });
  lost([&] { messages->send(1, 4, memory.data(), 1); });
  lost([&] { messages->receive(1, 4, memory.data(), 1); });
  EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(500));
}

TEST(GlooProcess, APeerThatIsKilledWithinAMessageIsNamed) {
  constexpr std::size_t kSize = std::size_t{64} << 20;
  if (const auto messages = rank_1()) {
    const Data memory(kSize);
    const auto send = messages->send(0, 2, memory.data(), kSize);
    const auto more = messages->send(0, 3, memory.data(), 1);
    raise(SIGSTOP);  // its buffers are full: part of the message has left
  }
  Child child;
  const auto messages = rank_0(child);
  Data memory(kSize);
  std::uint8_t byte = 0;
  const auto receive = messages->receive(1, 2, memory.data(), kSize);
  const auto never = messages->receive(1, 3, &byte, 1);
  EXPECT_FALSE(never->wait(Clock::now() + std::chrono::milliseconds(100)) && receive->wait(kPast));
  child.kill();
  lost([&] {
    receive->wait(soon());
    never->wait(soon());
    messages->receive(1, 4, &byte, 1)->wait(soon());
  });
}

TEST(GlooProcess, AReceiveGivenUpHalfwayLeavesItsMemoryAndOtherTagsAlone) {
  if (const auto messages = rank_1()) {
    until_halfway(*messages, 1, [&](std::uint32_t tag) {
      const Data memory(kLarge, 1);
      const auto send = messages->send(0, tag, memory.data(), kLarge);
      exchange(*messages, 0, 50 + tag);
      EXPECT_TRUE(send->wait(soon()));
      return false;
    });
    return;
  }
  Child child;
  const auto messages = rank_0(child);
  until_halfway(*messages, 0, [&](std::uint32_t tag) {
    const Untouched memory(kLarge);
    auto receive = messages->receive(1, tag, memory.data(), kLarge);
    memory.await_touch();
    child.stop();
    receive.reset();
    const Data before = memory.copy();
    child.go_on();
    exchange(*messages, 1, 50 + tag);
    EXPECT_EQ(std::memcmp(memory.data(), before.data(), kLarge), 0);
    return before.back() == 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(GlooProcess, APeerThatEndsInOrderTakesNothingWithIt) {
  constexpr std::size_t kSize = std::size_t{8} << 20;
  if (const auto messages = rank_1()) {
    const Data memory = pattern(kSize, 1);
    ASSERT_TRUE(messages->send(0, 2, memory.data(), kSize)->wait(soon()));
    return;  // sent, though not all of it may have been received
  }
  Child child;
  const auto messages = rank_0(child);
  Data memory(kSize);
  const auto receive = messages->receive(1, 2, memory.data(), kSize);
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(receive->wait(soon()));
  EXPECT_TRUE(memory == pattern(kSize, 1));
}

}  // namespace
}  // namespace ration::test

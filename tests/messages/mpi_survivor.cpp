// Rank 0 of two, whose peer is killed: no wait of it may last, and no memory may stay in use. Says
// what it saw; ctest looks for the last line, since mpirun reports the dead rank.

#include <csignal>
#include <cstdio>
#include <memory>
#include <vector>

#include <unistd.h>

#include "comm/mpi/mpi.hpp"

namespace ration {
namespace {

/// Whether the message ended, in whichever way, or the deadline passed: all but a hang will do.
const char* outcome(Message& message) {
  try {
    return message.wait(Clock::now() + std::chrono::milliseconds(500)) ? "done" : "deadline";
  } catch (const ConnectionLost&) {
    return "connection lost";
  }
}

int survive() {
  const auto session = open_mpi_session();
  const auto messages = make_mpi(session);
  std::vector<char> memory(32 << 20);
  const Deadline soon = Clock::now() + std::chrono::seconds(30);
  if (session->rank() == 1) {
    messages->receive(0, 1, memory.data(), 1)->wait(soon);
    raise(SIGKILL);
  }
  auto receive = messages->receive(1, 2, memory.data(), memory.size());
  auto send = messages->send(1, 3, memory.data(), memory.size());
  messages->send(1, 1, memory.data(), 1)->wait(soon);
  std::printf("receive: %s\n", outcome(*receive));
  std::printf("send: %s\n", outcome(*send));
  receive.reset();
  send.reset();
  session->give_up();
  std::printf("rank 0 goes on\n");
  std::fflush(stdout);
  _exit(0);  // as a failed rank: MPI is not ended
}

}  // namespace
}  // namespace ration

int main() {
  return ration::survive();
}

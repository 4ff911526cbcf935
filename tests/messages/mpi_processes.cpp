// What only processes of their own can show: that are killed, or begin MPI in their own way. ctest
// looks for the last line, since mpirun reports a killed rank as an error.

#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include <mpi.h>
#include <unistd.h>

#include <ration/error.hpp>

#include "comm/mpi/mpi.hpp"

namespace ration {
namespace {

/// How the message ended, or that it has not: all but a hang will do.
const char* outcome(Message& message) {
  try {
    return message.wait(Clock::now() + std::chrono::milliseconds(500)) ? "done" : "deadline";
  } catch (const ConnectionLost&) {
    return "connection lost";
  }
}

/// Rank 1 of two is killed: no wait of rank 0 may last, and no memory may stay in use.
int survive() {
  auto session = open_mpi_session();
  auto messages = make_mpi(session);
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
  messages.reset();
  session.reset();
  std::printf("rank 0 goes on\n");
  std::fflush(stdout);
  _exit(0);  // as a failed rank: MPI is not ended
}

/// A trainer that begins MPI, as most do, without threads; or adopts before it has begun.
int refuse() {
  int refused = 0;
  try {
    adopt_mpi_session(0);
  } catch (const InvalidArgument& error) {
    std::printf("%s\n", error.what());
    ++refused;
  }
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SINGLE, &level);
  try {
    open_mpi_session();
  } catch (const InvalidArgument& error) {
    std::printf("%s\n", error.what());
    refused += std::strstr(error.what(), "MPI_Init_thread") != nullptr ? 1 : 0;
  }
  MPI_Finalize();
  try {
    open_mpi_session();
  } catch (const InvalidArgument& error) {
    std::printf("%s\n", error.what());
    ++refused;
  }
  if (refused == 3) std::printf("all three refused\n");
  return 0;
}

/// A trainer that begins MPI with threads ends it itself.
int share() {
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  const auto session = open_mpi_session();
  session->finish();
  int ended = 1;
  MPI_Finalized(&ended);
  MPI_Finalize();
  if (ended == 0) std::printf("still the trainer's\n");
  return 0;
}

}  // namespace
}  // namespace ration

int main(int argc, char** argv) {
  const char* part = argc > 1 ? argv[1] : "";
  if (std::strcmp(part, "survive") == 0) return ration::survive();
  if (std::strcmp(part, "refuse") == 0) return ration::refuse();
  if (std::strcmp(part, "share") == 0) return ration::share();
  std::fprintf(stderr, "usage: mpi_processes survive|refuse|share\n");
  return 2;
}

// One rank of a job in which something goes wrong: does the same operation over and over, and in
// the middle of it the chosen rank dies, stops, throws, leaves or does something else.
//   rank_program OPERATION FAULT RANK
// prints "ready" before the round in which it happens.

#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <ration/ration.hpp>

#include "comm/communicator.hpp"

namespace ration {
namespace {

constexpr std::size_t kCount = 4096;
constexpr int kRounds = 20;
constexpr int kFaultyRound = 10;

class Operations {
 public:
  explicit Operations(Communicator& communicator, std::string name)
      : c_(communicator),
        name_(std::move(name)),
        stream_(c_.make_stream("test")),
        ranks_(static_cast<std::size_t>(c_.size())),
        send_(c_.allocate(ranks_ * kCount * sizeof(float))),
        recv_(c_.allocate(ranks_ * kCount * sizeof(float))) {}

  void run(std::size_t count = kCount, const char* tag = "unit") {
    if (name_ == "fold") {
      Bytes result;
      c_.control().fold(
          "step", Bytes(count == kCount ? 8 : 16),
          [](std::span<const Bytes> records, Bytes&) {
            for (std::size_t r = 1; r < records.size(); ++r) {
              if (records[r].size() != records[0].size()) {
                throw CommunicationError(fmt::format("rank {} is in another step than rank 0", r));
              }
            }
          },
          result, tag);
      return;
    }
    Operation operation{
        .kind = kind(), .count = count, .send = send_->data(), .recv = recv_->data(), .tag = tag};
    if (operation.kind == OperationKind::broadcast) operation.peer = 0;
    const int next = (c_.rank() + 1) % c_.size();
    const int former = (c_.rank() + c_.size() - 1) % c_.size();
    if (operation.kind == OperationKind::send) {  // round a ring
      operation.peer = next;
      const Sequence sent = c_.submit(*stream_, operation);
      operation.kind = OperationKind::recv;
      operation.peer = former;
      c_.submit(*stream_, operation);
      c_.release(*stream_, sent);
    } else {
      c_.release(*stream_, c_.submit(*stream_, operation));
    }
    stream_->synchronize();
  }

 private:
  [[nodiscard]] OperationKind kind() const {
    for (int k = 0; k <= static_cast<int>(OperationKind::barrier); ++k) {
      if (name_of(static_cast<OperationKind>(k)) == name_) return static_cast<OperationKind>(k);
    }
    throw std::runtime_error("no operation " + name_);
  }

  Communicator& c_;
  const std::string name_;
  std::unique_ptr<Stream> stream_;
  const std::size_t ranks_;
  std::unique_ptr<Memory> send_;
  std::unique_ptr<Memory> recv_;
};

// Returns true where the rank is to end.
bool go_wrong(const std::string& fault, Operations& operations, int rank) {
  if (fault == "kill") raise(SIGKILL);
  if (fault == "stop") raise(SIGSTOP);
  if (fault == "throw") throw std::runtime_error(fmt::format("rank {}: out of cheese", rank));
  if (fault == "return") return true;
  if (fault == "size") operations.run(kCount / 2);
  if (fault == "order") operations.run(kCount, "another unit");
  return false;
}

}  // namespace
}  // namespace ration

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::string operation = argv[1];
  const std::string fault = argv[2];
  const int faulty = std::stoi(argv[3]);
  return ration::launch(argc, argv, [&](ration::World& world) {
    ration::Operations operations(*world.communicator(), operation);
    for (int round = 0; round < ration::kRounds; ++round) {
      if (round == ration::kFaultyRound && world.rank() == faulty) {
        std::puts("ready");
        std::fflush(stdout);
        if (fault == "wait") std::getchar();  // for what is done from outside
        if (ration::go_wrong(fault, operations, world.rank())) return;
      }
      operations.run();
    }
  });
}

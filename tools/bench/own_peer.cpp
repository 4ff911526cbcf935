#include "bench/peers.hpp"
#include "bench/timing.hpp"

namespace ration::tools {

double Peer::time(const Work& work, int repeats) {
  const auto start = Clock::now();
  for (int i = 0; i < repeats; ++i) run(work);
  return seconds_since(start) / repeats;
}

namespace {

class OwnPeer final : public Peer {
 public:
  explicit OwnPeer(Communicator& communicator)
      : communicator_(communicator), stream_(communicator.make_stream("bench")) {}

  [[nodiscard]] std::string_view name() const override { return "ours"; }

  const float* run(const Work& work) override {
    const bool gathers = work.kind == OperationKind::all_gather;
    const bool whole = work.kind == OperationKind::all_reduce;
    const auto self = static_cast<std::size_t>(communicator_.rank());
    const auto size = static_cast<std::size_t>(communicator_.size());
    communicator_.submit(*stream_, {.kind = work.kind,
                                    .count = whole ? work.count * size : work.count,
                                    .send = gathers ? work.recv + self * work.count : work.send,
                                    .recv = work.recv,
                                    .tag = "bench"});
    stream_->synchronize();
    return work.recv;
  }

 private:
  Communicator& communicator_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace

std::unique_ptr<Peer> make_own_peer(Communicator& communicator) {
  return std::make_unique<OwnPeer>(communicator);
}

}  // namespace ration::tools

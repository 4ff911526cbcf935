#include <algorithm>
#include <cstring>

#include "bench/peers.hpp"

namespace ration::tools {
namespace {

class Triad final : public Peer {
 public:
  explicit Triad(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  [[nodiscard]] std::string_view name() const override { return "triad"; }

  const float* run(const Work& work) override {
    if (work.kind != OperationKind::all_gather) sum(work.send, work.recv, work.count);
    if (work.kind != OperationKind::reduce_scatter) {
      for (std::size_t i = 1; i < ranks_; ++i) {
        std::memcpy(work.recv + i * work.count, work.send + i * work.count,
                    work.count * sizeof(float));
      }
    }
    return nullptr;
  }

 private:
  void sum(const float* from, float* __restrict to, std::size_t n) const {
    if (ranks_ == 2) {
      for (std::size_t i = 0; i < n; ++i) to[i] = from[i] + from[n + i];
    } else if (ranks_ == 4) {
      for (std::size_t i = 0; i < n; ++i) {
        to[i] = from[i] + from[n + i] + from[2 * n + i] + from[3 * n + i];
      }
    } else {  // in pieces that stay in the first cache, so that memory is still passed once
      constexpr std::size_t kPiece = 1024;
      for (std::size_t begin = 0; begin < n; begin += kPiece) {
        const std::size_t end = std::min(n, begin + kPiece);
        for (std::size_t i = begin; i < end; ++i) to[i] = from[i];
        for (std::size_t r = 1; r < ranks_; ++r) {
          for (std::size_t i = begin; i < end; ++i) to[i] += from[r * n + i];
        }
      }
    }
  }

  const std::size_t ranks_;
};

}  // namespace

std::unique_ptr<Peer> make_triad(int ranks) {
  return std::make_unique<Triad>(ranks);
}

}  // namespace ration::tools

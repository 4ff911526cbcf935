#pragma once
// Who does the same collectives as we do, to be timed beside us.

#include <memory>
#include <string_view>

#include "comm/communicator.hpp"

namespace ration::tools {

/// One collective of f32. Both buffers hold a shard per rank.
struct Work {
  OperationKind kind = OperationKind::all_reduce;
  std::size_t count = 0;  ///< elements of a shard; an all_reduce is of the whole buffer
  float* send = nullptr;  ///< its contents may be gone afterwards
  float* recv = nullptr;  ///< all_gather: holds the own shard, at its place
};

/// All ranks call the same members in the same order.
class Peer {
 public:
  virtual ~Peer() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;

  /// Whether it can do this: the same answer on all ranks.
  [[nodiscard]] virtual bool can(const Work& /*work*/) const { return true; }

  /// Once; returns where the result lies, or nothing where there is none to look at.
  virtual const float* run(const Work& work) = 0;

  /// `repeats` times; returns the seconds of one, as this rank saw them.
  virtual double time(const Work& work, int repeats);
};

/// The library, by `communicator`.
std::unique_ptr<Peer> make_own_peer(Communicator& communicator);

/// Not a collective but a measure of the machine: what a rank could do at best. It reads as many
/// streams of as many bytes, and writes as many, as the collective makes a rank read and write,
/// with plain loops, in memory of its own, and waits for nobody. For N ranks and a whole buffer of
/// B bytes
///  - reduce_scatter reads N streams of B/N and writes one: to[i] = a[i] + b[i] + ...
///  - all_gather copies N - 1 streams of B/N (the own shard is in place)
///  - all_reduce does the one, then the other.
std::unique_ptr<Peer> make_triad(int ranks);

/// The threads backend: rank 0 alone runs `ranks` threads, with buffers of `bytes` each, while the
/// other ranks have nothing to do.
std::unique_ptr<Peer> make_threads_peer(int rank, int ranks, std::size_t bytes);

/// MPI's own collectives over MPI_COMM_WORLD; nullptr where MPI is not built in or has not begun.
std::unique_ptr<Peer> make_mpi_peer(Control& control);

/// gloo's own collectives, over connections of their own; nullptr where gloo is not built in.
/// Collective.
std::unique_ptr<Peer> make_gloo_peer(Control& control);

}  // namespace ration::tools

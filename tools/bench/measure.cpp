#include "bench/measure.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "bench/meeting.hpp"
#include "bench/peers.hpp"
#include "bench/timing.hpp"

namespace ration::tools {
namespace {

constexpr OperationKind kKinds[] = {OperationKind::reduce_scatter, OperationKind::all_gather,
                                    OperationKind::all_reduce};

/// Two whole buffers, of a contender's kind of memory.
struct Buffers {
  float* send = nullptr;
  float* recv = nullptr;
};

struct Contender {
  std::unique_ptr<Peer> peer;
  Buffers buffers;
};

Buffers of(Memory& send, Memory& recv) {
  return {reinterpret_cast<float*>(send.data()), reinterpret_cast<float*>(recv.data())};
}

Work work_of(const Contender& contender, OperationKind kind, std::size_t count) {
  return {
      .kind = kind, .count = count, .send = contender.buffers.send, .recv = contender.buffers.recv};
}

/// Every rank sends ones to be summed, and gathers its number plus one.
void fill(const Work& work, std::size_t rank, std::size_t ranks) {
  std::fill_n(work.send, work.count * ranks, 1.0F);
  std::fill_n(work.recv, work.count * ranks, 0.0F);
  std::fill_n(work.recv + rank * work.count, work.count, static_cast<float>(rank + 1));
}

void check(const Peer& peer, const Work& work, const float* result, std::size_t rank,
           std::size_t ranks) {
  const bool gathers = work.kind == OperationKind::all_gather;
  const std::size_t shards = work.kind == OperationKind::reduce_scatter ? 1 : ranks;
  for (std::size_t i = 0; i < shards * work.count; ++i) {
    const auto expected = static_cast<float>(gathers ? i / work.count + 1 : ranks);
    if (result[i] == expected) continue;
    throw CommunicationError(
        fmt::format("rank {}: bench: {}'s {} gave {} at element {}, expected {}", rank, peer.name(),
                    name_of(work.kind), result[i], i, expected));
  }
}

/// The round that warms up.
void try_out(Meeting& meeting, const Communicator& communicator, Peer& peer, const Work& work) {
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const auto ranks = static_cast<std::size_t>(communicator.size());
  fill(work, rank, ranks);
  meeting.begin();
  const float* result = peer.run(work);
  if (result) check(peer, work, result, rank, ranks);
  meeting.longest(0);  // until then others may read what is sent
}

void measure_size(Communicator& communicator, std::size_t bytes, const MeasureOptions& options,
                  const std::vector<Contender>& contenders, std::vector<Measured>& measured) {
  // Small ones many times between two looks at the clock.
  constexpr std::size_t kBytesPerRound = std::size_t{64} << 20;
  const int repeats = static_cast<int>(std::max<std::size_t>(1, kBytesPerRound / bytes));
  const int rounds = options.rounds > 0 ? options.rounds : (bytes >= kBytesPerRound ? 15 : 40);
  const std::size_t count = bytes / sizeof(float) / static_cast<std::size_t>(communicator.size());
  Meeting meeting(communicator);
  std::vector<std::vector<double>> times(std::size(kKinds) * contenders.size());
  for (int round = -1; round < rounds; ++round) {
    auto into = times.begin();
    for (const OperationKind kind : kKinds) {
      for (const Contender& contender : contenders) {
        std::vector<double>& list = *into++;
        const Work work = work_of(contender, kind, count);
        if (!contender.peer->can(work)) continue;
        if (round < 0) {
          try_out(meeting, communicator, *contender.peer, work);
        } else {
          meeting.begin();
          list.push_back(meeting.longest(contender.peer->time(work, repeats)));
        }
      }
    }
  }
  auto from = times.begin();
  for (const OperationKind kind : kKinds) {
    Measured one{.kind = kind,
                 .bytes = bytes,
                 .ranks = communicator.size(),
                 .rounds = rounds,
                 .backend = std::string(communicator.backend())};
    for (const Contender& contender : contenders) {
      const std::vector<double>& list = *from++;
      one.timings.push_back({.name = std::string(contender.peer->name())});
      if (!list.empty()) one.timings.back().seconds = median(list);
    }
    measured.push_back(std::move(one));
  }
}

}  // namespace

std::vector<Measured> measure_collectives(Communicator& communicator,
                                          const MeasureOptions& options) {
  const std::size_t most = *std::max_element(options.bytes.begin(), options.bytes.end());
  const int ranks = communicator.size();
  std::vector<Contender> contenders;
  const auto add = [&](std::unique_ptr<Peer> peer, const Buffers& buffers) {
    if (peer) contenders.push_back({std::move(peer), buffers});
  };
  const auto send = communicator.allocate(most);
  const auto recv = communicator.allocate(most);
  add(make_own_peer(communicator), of(*send, *recv));
  std::vector<float> plain_send;
  std::vector<float> plain_recv;
  if (options.processes) {  // what any program has
    plain_send.resize(most / sizeof(float));
    plain_recv.resize(most / sizeof(float));
    const Buffers plain{plain_send.data(), plain_recv.data()};
    add(make_mpi_peer(communicator.control()), plain);
    add(make_gloo_peer(communicator.control()), plain);
    add(make_threads_peer(communicator.rank(), ranks, most), plain);
  }
  const auto triad_send = allocate_host(most);
  const auto triad_recv = allocate_host(most);
  add(make_triad(ranks), of(*triad_send, *triad_recv));
  std::vector<Measured> measured;
  for (const std::size_t bytes : options.bytes) {
    measure_size(communicator, bytes, options, contenders, measured);
  }
  return measured;
}

}  // namespace ration::tools

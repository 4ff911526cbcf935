#include <algorithm>
#include <cstdint>

#include "bench/measure.hpp"
#include "bench/meeting.hpp"
#include "bench/timing.hpp"

namespace ration::tools {
namespace {

/// Arithmetic in registers: a piece is a few microseconds.
float compute_piece(float x) {
  constexpr int kLength = 4096;
  for (int i = 0; i < kLength; ++i) x = x * 0.999F + 0.001F;
  return x;
}

/// Returns how many pieces were done in that time.
std::int64_t compute_for(double seconds) {
  const auto start = Clock::now();
  volatile float kept = 0.5F;
  std::int64_t pieces = 0;
  for (; seconds_since(start) < seconds; ++pieces) kept = compute_piece(kept);
  return pieces;
}

/// Returns how long it took.
double compute(std::int64_t pieces) {
  const auto start = Clock::now();
  volatile float kept = 0.5F;
  for (; pieces > 0; --pieces) kept = compute_piece(kept);
  return seconds_since(start);
}

}  // namespace

Overlap measure_overlap(Communicator& communicator, std::size_t bytes, int rounds) {
  const std::size_t count = bytes / sizeof(float) / static_cast<std::size_t>(communicator.size());
  const auto send = communicator.allocate(bytes);
  const auto recv = communicator.allocate(bytes);
  std::fill_n(reinterpret_cast<float*>(send->data()), bytes / sizeof(float), 1.0F);
  std::fill_n(reinterpret_cast<float*>(recv->data()), bytes / sizeof(float), 0.0F);
  const auto stream = communicator.make_stream("bench");
  Meeting meeting(communicator);
  const auto submit = [&] {
    communicator.submit(*stream, {.kind = OperationKind::reduce_scatter,
                                  .count = count,
                                  .send = send->data(),
                                  .recv = recv->data(),
                                  .tag = "bench"});
  };
  if (rounds == 0) rounds = 15;
  std::vector<double> alone;
  for (int round = -1; round < rounds; ++round) {
    meeting.begin();
    const auto start = Clock::now();
    submit();
    stream->synchronize();
    const double seconds = meeting.longest(seconds_since(start));
    if (round >= 0) alone.push_back(seconds);
  }
  const double seconds = median(alone);
  const auto wait = [&] {
    const auto start = Clock::now();
    stream->synchronize();
    return meeting.longest(seconds_since(start));
  };
  std::vector<double> by_work;
  std::vector<double> by_clock;
  std::vector<double> slowdowns;
  for (int round = -1; round < rounds; ++round) {
    meeting.begin();
    const std::int64_t pieces = compute_for(2 * seconds);
    meeting.begin();
    submit();
    const double slowdown = compute(pieces) / (2 * seconds);
    const double left_by_work = wait();
    meeting.begin();
    submit();
    compute_for(2 * seconds);
    const double left_by_clock = wait();
    if (round < 0) continue;
    by_work.push_back(left_by_work);
    by_clock.push_back(left_by_clock);
    slowdowns.push_back(meeting.longest(slowdown));
  }
  return {.bytes = bytes,
          .ranks = communicator.size(),
          .rounds = rounds,
          .seconds = seconds,
          .left_by_work = median(by_work),
          .left_by_clock = median(by_clock),
          .slowdown = median(slowdowns)};
}

}  // namespace ration::tools

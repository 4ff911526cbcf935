#include <algorithm>

#include "bench/measure.hpp"
#include "bench/meeting.hpp"
#include "bench/timing.hpp"

namespace ration::tools {
namespace {

/// Arithmetic in registers, for as long; returns how much of it was done.
double compute(double seconds) {
  constexpr int kBetweenLooks = 4096;
  const auto start = Clock::now();
  float x = 0.5F;
  double done = 0;
  while (seconds_since(start) < seconds) {
    for (int i = 0; i < kBetweenLooks; ++i) x = x * 0.999F + 0.001F;
    done += 1;
  }
  volatile float kept = x;  // else there is no loop
  static_cast<void>(kept);
  return done;
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
  std::vector<double> left;
  std::vector<double> computed;
  for (int round = -1; round < rounds; ++round) {
    meeting.begin();
    const double undisturbed = compute(2 * seconds);
    meeting.begin();
    submit();
    const double disturbed = compute(2 * seconds);
    const auto start = Clock::now();
    stream->synchronize();
    const double rest = meeting.longest(seconds_since(start));
    if (round < 0) continue;
    left.push_back(rest);
    computed.push_back(disturbed / undisturbed);
  }
  return {.bytes = bytes,
          .ranks = communicator.size(),
          .rounds = rounds,
          .seconds = seconds,
          .left_seconds = median(left),
          .compute = median(computed)};
}

}  // namespace ration::tools

// A rank that is a process, for process_test: it meets the others, then folds again and again until
// some rank's input ends, and says how that went.
//
//   control_rank_process RANK SIZE PORT TOKEN [abort | quit]
//
// `abort` aborts the job after ten folds and ends on the spot, `quit` only ends on the spot.

#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "control/tcp/star.hpp"

namespace {

using namespace ration;

void say(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) std::_Exit(9);
}

bool input_has_ended() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return ::poll(&input, 1, 0) > 0;
}

void any_of(std::span<const Bytes> records, Bytes& result) {
  result.assign(1, std::byte{0});
  for (const Bytes& record : records) result[0] |= record[0];
}

void run(const Meeting& meeting, std::string_view deed) {
  const auto star = Star::meet(meeting, std::make_shared<Alarm>(meeting.size));
  std::vector<int> names(static_cast<std::size_t>(meeting.size));
  std::iota(names.begin(), names.end(), 0);
  const auto control = star->control(0, names, meeting.rank);
  Bytes result(1);
  for (int i = 0; result[0] == std::byte{0}; ++i) {
    if (i == 10 && deed == "abort") control->abort("rank 1: had enough");
    if (i == 10 && !deed.empty()) std::_Exit(4);
    control->fold("step", Bytes(1, std::byte{input_has_ended()}), any_of, result, "a step");
    if (i == 0) say("met");
  }
}

}  // namespace

int main(int /*argc*/, char** argv) {
  Meeting meeting;
  meeting.rank = std::atoi(argv[1]);
  meeting.size = std::atoi(argv[2]);
  meeting.hosts = {"127.0.0.1"};
  meeting.ports = {static_cast<std::uint16_t>(std::atoi(argv[3]))};
  meeting.token = argv[4];
  try {
    run(meeting, argv[5] ? argv[5] : "");
    say("done");
    return 0;
  } catch (const Timeout& e) {
    say(fmt::format("Timeout: {}", e.what()));
  } catch (const RemoteError& e) {
    say(fmt::format("RemoteError: {}", e.what()));
  } catch (const CommunicationError& e) {
    say(fmt::format("CommunicationError: {}", e.what()));
  } catch (const std::exception& e) {
    say(e.what());
  }
  return 3;
}

// Whatever bytes arrive, in whatever pieces: frames come out, or CommunicationError, and what can
// be decoded is the same when it has been encoded again.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <ration/error.hpp>

#include "control/tcp/protocol.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ration::tcp;
  if (size == 0) return 0;
  // The first byte chooses the limit and the size of the pieces.
  FrameDecoder decoder(data[0] & 1 ? kMostOfRank : kMostOfStranger);
  const std::size_t step = std::size_t{1} + (data[0] >> 1);
  std::span<const std::byte> rest = std::as_bytes(std::span(data + 1, size - 1));
  try {
    while (!rest.empty()) {
      std::span<const std::byte> piece = rest.first(std::min(step, rest.size()));
      rest = rest.subspan(piece.size());
      while (const auto frame = decoder.next(piece)) check_decodes(*frame);
    }
  } catch (const ration::CommunicationError&) {
  }
  return 0;
}

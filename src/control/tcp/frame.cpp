#include "control/tcp/frame.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <ration/error.hpp>

namespace ration::tcp {

std::optional<Frame> FrameDecoder::next(std::span<const std::byte>& input) {
  if (head_bytes_ < kFrameHead) {
    const std::size_t taken = std::min(input.size(), kFrameHead - head_bytes_);
    if (taken) std::memcpy(head_.data() + head_bytes_, input.data(), taken);
    head_bytes_ += taken;
    input = input.subspan(taken);
    if (head_bytes_ < kFrameHead) return std::nullopt;
    read_head();
  }
  const std::size_t taken = std::min(input.size(), length_ - frame_.payload.size());
  frame_.payload.insert(frame_.payload.end(), input.begin(),
                        input.begin() + static_cast<std::ptrdiff_t>(taken));
  input = input.subspan(taken);
  if (frame_.payload.size() < length_) return std::nullopt;
  head_bytes_ = 0;
  return std::exchange(frame_, {});
}

void FrameDecoder::read_head() {
  std::uint32_t length = 0;
  std::memcpy(&length, head_.data(), sizeof length);
  const auto kind = static_cast<std::uint8_t>(head_[sizeof length]);
  if (length > most_ || kind >= kFrameKinds) {
    head_bytes_ = 0;
    throw CommunicationError(
        fmt::format("no frame: kind {}, {} bytes of at most {}", kind, length, most_));
  }
  length_ = length;
  frame_.kind = static_cast<FrameKind>(kind);
}

std::size_t FrameDecoder::wanted() const {
  return head_bytes_ < kFrameHead ? kFrameHead - head_bytes_ : length_ - frame_.payload.size();
}

}  // namespace ration::tcp

#pragma once
// The safetensors format: a length, a JSON header, the tensors' bytes without holes.
// https://github.com/huggingface/safetensors

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/foreign.hpp"

namespace ration::checkpoint {

/// A tensor and where its bytes are, counted from the first byte behind the header.
struct SafeTensor : ForeignTensor {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// Longest header that is written or read, bytes.
inline constexpr std::uint64_t kSafetensorsHeader = std::uint64_t{32} << 20;

/// Length and header, padded so that the data begins at a multiple of 8. `metadata` is any text by
/// name. Throws InvalidArgument for names that are not UTF-8 or a header that would be too long.
std::string safetensors_header(std::span<const SafeTensor> tensors,
                               const std::map<std::string, std::string>& metadata);

/// Reads a header (without its length) in front of `data_bytes` bytes. Throws CorruptCheckpoint
/// unless the tensors lie side by side, in any order, and fill the data; InvalidArgument for
/// element types other than F32, BF16, F16. Needs memory of a few times the text.
std::vector<SafeTensor> parse_safetensors_header(std::string_view text, std::uint64_t data_bytes,
                                                 const std::string& where);

}  // namespace ration::checkpoint

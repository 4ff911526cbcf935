// Whatever a header says: tensors come out that lie side by side in the data, or an error of ours;
// and what came out is the same when it has been written again.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <ration/error.hpp>

#include "checkpoint/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ration::checkpoint;
  if (size == 0) return 0;
  // The first byte says how much data there is.
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    const auto tensors = parse_safetensors_header(text, data[0], "file");
    const std::string again = safetensors_header(tensors, {});
    const auto read = parse_safetensors_header(std::string_view(again).substr(8), data[0], "again");
    if (read.size() != tensors.size()) std::abort();
    for (const SafeTensor& tensor : read) {
      const auto same = std::any_of(tensors.begin(), tensors.end(), [&](const SafeTensor& other) {
        return other.name == tensor.name && other.shape == tensor.shape &&
               other.begin == tensor.begin && other.end == tensor.end;
      });
      if (!same || tensor.end > data[0]) std::abort();
    }
  } catch (const ration::Error&) {
  }
  return 0;
}

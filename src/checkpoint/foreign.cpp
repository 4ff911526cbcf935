#include "checkpoint/foreign.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "io/file.hpp"
#include "layout/layout.hpp"

namespace ration::checkpoint {

int ForeignFile::find(std::string_view name) const {
  const auto place = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const ForeignTensor& tensor, std::string_view n) { return tensor.name < n; });
  if (place == tensors_.end() || place->name != name) return -1;
  return static_cast<int>(place - tensors_.begin());
}

std::int64_t count_of(const std::vector<std::int64_t>& shape) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 8;  // bytes fit, too
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || count > kMost / size) return -1;
    count *= size;
  }
  return count;
}

void settle_names(std::vector<ForeignTensor>& tensors, const std::string& where) {
  std::sort(tensors.begin(), tensors.end(),
            [](const ForeignTensor& a, const ForeignTensor& b) { return a.name < b.name; });
  for (const ForeignTensor& tensor : tensors) {
    try {
      validate_name("tensor", tensor.name);
    } catch (const InvalidArgument& error) {
      throw CorruptCheckpoint(fmt::format("{}: {}", where, error.what()));
    }
  }
}

std::unique_ptr<ForeignFile> open_foreign(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  if (error) throw IoError(fmt::format("{}: {}", path.string(), error.message()));
  if (!std::filesystem::is_regular_file(real)) {
    throw InvalidArgument(fmt::format("{}: is not a file", path.string()));
  }
  constexpr std::array<unsigned char, 8> kHdf5 = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  std::array<std::byte, 9> begin{};
  const io::File file(real, io::Access::read);
  if (file.size() >= begin.size()) file.read(0, begin);
  if (std::memcmp(begin.data(), kHdf5.data(), kHdf5.size()) == 0) return open_hdf5(real);
  if (begin[8] == std::byte{'{'}) return open_safetensors(real);
  throw InvalidArgument(
      fmt::format("{}: is neither safetensors nor HDF5, by its first bytes", path.string()));
}

}  // namespace ration::checkpoint

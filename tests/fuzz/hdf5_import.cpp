// Whatever an HDF5 file holds: its tensors can be read, or there is an error of ours. HDF5 itself
// is not built with the sanitizers; what breaks in it shows as a crash.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <unistd.h>

#include <ration/error.hpp>

#include "checkpoint/foreign.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string path =
      (std::filesystem::temp_directory_path() / ("fuzz-" + std::to_string(getpid()) + ".h5"))
          .string();
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) return 0;
  std::fwrite(data, 1, size, file);
  std::fclose(file);
  try {
    const auto foreign = ration::checkpoint::open_hdf5(path);
    for (std::size_t t = 0; t < foreign->tensors().size(); ++t) {
      const auto& tensor = foreign->tensors()[t];
      const std::int64_t count = std::min<std::int64_t>(tensor.count, 1000);
      std::vector<std::byte> values(static_cast<std::size_t>(count) * size_of(tensor.dtype));
      foreign->read(t, tensor.count - count, count, values.data());
    }
  } catch (const ration::Error&) {
  }
  std::remove(path.c_str());
  return 0;
}

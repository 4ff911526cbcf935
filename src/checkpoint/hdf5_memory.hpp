#pragma once
// A file that HDF5 makes in memory: a driver of HDF5's that keeps the pages written to, so that
// datasets nobody wrote to take nothing, and that fails only when memory runs out.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include <hdf5.h>

#include "io/file.hpp"

namespace ration::checkpoint::hdf5 {

/// Stays where it is, and outlives the HDF5 file made with it. Hold `mutex()` meanwhile.
class MemoryFile {
 public:
  MemoryFile() = default;
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() = default;

  /// Makes H5Fcreate with this access list make its file here, whatever it is called.
  herr_t choose_for(hid_t access);

  /// To an empty file: what HDF5 wrote; the rest is a hole. Throws IoError.
  void write_to(const io::File& file) const;

  // What HDF5 calls.
  void read(std::uint64_t offset, std::size_t size, std::byte* to) const;
  void write(std::uint64_t offset, std::size_t size, const std::byte* from);
  void resize(std::uint64_t size) { size_ = size; }
  [[nodiscard]] std::uint64_t size() const { return size_; }

 private:
  static constexpr std::size_t kPage = 4096;
  std::map<std::uint64_t, std::array<std::byte, kPage>> pages_;  ///< by their number
  std::uint64_t size_ = 0;
};

}  // namespace ration::checkpoint::hdf5

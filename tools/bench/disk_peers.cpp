#include "bench/disk_peers.hpp"

#include <algorithm>
#include <string>

#include <hdf5.h>

#include <ration/error.hpp>

#include "io/file.hpp"

namespace ration::tools {
namespace {

constexpr std::size_t kBlock = std::size_t{4} << 20;

}  // namespace

void raw_write(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const io::File file(path, io::Access::write_new, io::Cache::direct);
  for (std::size_t place = 0; place < bytes.size(); place += kBlock)
    file.write(place, bytes.subspan(place, std::min(kBlock, bytes.size() - place)));
  file.synchronize();
}

void raw_read(const std::filesystem::path& path, std::size_t bytes, std::byte* block) {
  const io::File file(path, io::Access::read, io::Cache::direct);
  for (std::size_t place = 0; place < bytes; place += kBlock)
    file.read(place, {block, std::min(kBlock, bytes - place)});
}

void plain_hdf5_write(const std::filesystem::path& path, std::span<const float> values,
                      int arrays) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT);
  const std::size_t length = values.size() / static_cast<std::size_t>(arrays);
  const hsize_t size = length;
  bool fine = file >= 0;
  for (int i = 0; i < arrays; ++i) {
    const hid_t space = H5Screate_simple(1, &size, nullptr);
    const hid_t set = H5Dcreate2(file, ("array" + std::to_string(i)).c_str(), H5T_IEEE_F32LE, space,
                                 H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    fine = fine && H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                            values.data() + static_cast<std::size_t>(i) * length) >= 0;
    H5Dclose(set);
    H5Sclose(space);
  }
  if (H5Fclose(file) < 0 || !fine) throw IoError(path.string() + ": HDF5 could not write it");
  io::File(path, io::Access::read_write).synchronize();
}

}  // namespace ration::tools

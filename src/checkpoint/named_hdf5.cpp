#include "checkpoint/named_hdf5.hpp"

#include <fmt/format.h>

#include <ration/error.hpp>

namespace ration::checkpoint {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw InvalidArgument(
      fmt::format("tensor \"{}\" cannot be put into an HDF5 file beside the others: {}; merge to "
                  "safetensors",
                  name, why));
}

// Of "a//b" and "a/./b" HDF5 makes "a/b".
void check_name(const std::string& name) {
  const std::string path = "/" + name + "/";
  if (path.find("//") != std::string::npos || path.find("/./") != std::string::npos)
    refuse(name, "as a path it would have another name");
}

std::uint64_t add(const hdf5::NewFile& file, const NamedTensor& tensor, const hdf5::Object& how) {
  check_name(tensor.name);
  const hdf5::Object links(H5Pcreate(H5P_LINK_CREATE));
  H5Pset_create_intermediate_group(links, 1);
  const hdf5::Handle type = hdf5::file_type(tensor.dtype);
  const hdf5::Object space = hdf5::space_of(tensor.shape);
  const hdf5::Object set(
      H5Dcreate2(file.id(), tensor.name.c_str(), type, space, links, how, H5P_DEFAULT));
  if (set < 0) refuse(tensor.name, hdf5::reason());
  const haddr_t offset = H5Dget_offset(set);
  return offset == HADDR_UNDEF ? 0 : offset;
}

void link(hdf5::NewFile& file, const TiedTensor& tied) {
  check_name(tied.name);
  try {
    file.add_link(tied.name, tied.tensor);
  } catch (const IoError& error) {
    refuse(tied.name, error.what());
  }
}

}  // namespace

hdf5::Object contiguous_storage() {
  hdf5::Object how(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_layout(how, H5D_CONTIGUOUS);
  H5Pset_alloc_time(how, H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(how, H5D_FILL_TIME_NEVER);
  return how;
}

TensorOffsets create_named_hdf5(const std::filesystem::path& path, const Manifest& manifest,
                                const TensorList& list, const StorageOf& storage_of) {
  const std::lock_guard lock(hdf5::mutex());
  hdf5::NewFile file(path);
  file.add_number("", "step", manifest.step);
  file.add_text("", "uuid", manifest.uuid);
  TensorOffsets offsets;
  for (std::size_t i = 0; i < list.tensors.size(); ++i)
    offsets.push_back(add(file, list.tensors[i], storage_of(i)));
  for (const TiedTensor& tied : list.tied) link(file, tied);
  file.close();
  return offsets;
}

}  // namespace ration::checkpoint

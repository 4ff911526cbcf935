#pragma once
// An HDF5 file with a dataset per tensor, under the tensor's name.

#include <filesystem>
#include <functional>

#include "checkpoint/hdf5_object.hpp"
#include "checkpoint/tensors.hpp"

namespace ration::checkpoint {

/// Where each tensor's bytes belong in the file, in the list's order (0 for empty ones).
using TensorOffsets = std::vector<std::uint64_t>;

/// What a tensor's dataset is made with.
using StorageOf = std::function<hdf5::Object(std::size_t tensor)>;

/// Makes the file at `path`, which must not exist: a dataset per tensor, hard links for tied ones,
/// the step and uuid as attributes. Names become paths. Throws InvalidArgument for names that HDF5
/// cannot tell apart, IoError.
TensorOffsets create_named_hdf5(const std::filesystem::path& path, const Manifest& manifest,
                                const TensorList& list, const StorageOf& storage_of);

/// Contiguous, with its place in the file from the beginning, not filled.
hdf5::Object contiguous_storage();

}  // namespace ration::checkpoint

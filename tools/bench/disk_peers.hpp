#pragma once
// What a save and a load are measured beside: the disk itself, and plain HDF5.

#include <cstddef>
#include <filesystem>
#include <span>

namespace ration::tools {

/// A new file of these bytes, in blocks of 4 MiB around the page cache, then fsync.
void raw_write(const std::filesystem::path& path, std::span<const std::byte> bytes);

/// The same bytes back into `block`, 4 MiB aligned to 4 KiB, one block after the other.
void raw_read(const std::filesystem::path& path, std::size_t bytes, std::byte* block);

/// A new HDF5 file with `arrays` f32 datasets that H5Dwrite fills, closed, then fsync.
void plain_hdf5_write(const std::filesystem::path& path, std::span<const float> values, int arrays);

}  // namespace ration::tools

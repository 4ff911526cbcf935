#pragma once
// Weights that other programs wrote (safetensors, HDF5), by name: listed when opened, read in
// pieces. The file is taken for hostile: whatever is odd about it is refused, with little memory,
// and no other file is ever opened for it.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ration/dtype.hpp>

namespace ration::checkpoint {

struct ForeignTensor {
  std::string name = {};  ///< as it may be registered
  std::vector<std::int64_t> shape = {};
  DType dtype = DType::f32;  ///< f32, bf16 or f16
  std::int64_t count = 0;    ///< elements
};

class ForeignFile {
 public:
  virtual ~ForeignFile() = default;

  /// By name.
  [[nodiscard]] std::span<const ForeignTensor> tensors() const { return tensors_; }
  /// Its place in `tensors()`, or -1.
  [[nodiscard]] int find(std::string_view name) const;

  /// Elements [first, first + count) of a tensor, row-major. Throws IoError, CorruptCheckpoint.
  virtual void read(std::size_t tensor, std::int64_t first, std::int64_t count,
                    std::byte* to) const = 0;

 protected:
  std::vector<ForeignTensor> tensors_;
};

/// Opens a file of either kind, told by its first bytes. Throws IoError when it cannot be read,
/// InvalidArgument when it is of neither kind or holds other than f32, bf16 and f16,
/// CorruptCheckpoint when it is not sound. `path` may be a symbolic link.
std::unique_ptr<ForeignFile> open_foreign(const std::filesystem::path& path);

/// The two kinds.
std::unique_ptr<ForeignFile> open_safetensors(const std::filesystem::path& path);
std::unique_ptr<ForeignFile> open_hdf5(const std::filesystem::path& path);

/// Elements of a shape, or -1 where that is more than fits.
std::int64_t count_of(const std::vector<std::int64_t>& shape);

/// Sorts by name and refuses names that cannot be registered. `where` names the file.
void settle_names(std::vector<ForeignTensor>& tensors, const std::string& where);

}  // namespace ration::checkpoint

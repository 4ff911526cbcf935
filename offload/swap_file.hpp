#pragma once
// Files that nobody else sees: their names are gone as soon as they are open, so nothing stays
// behind however the process ends, and two jobs in one folder do not meet.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "io/file.hpp"

namespace ration::offload {

/// One address space over a file in each folder, cut into stripes that go round.
class SwapFiles {
 public:
  /// Preallocated, so that a full disk is an error here and not in the middle of a step. Throws
  /// IoError naming the folder, what is needed and what is free.
  SwapFiles(const std::vector<std::filesystem::path>& folders, std::uint64_t bytes, bool direct);

  /// A part of a range that lies in one file.
  struct Piece {
    std::size_t file = 0;
    std::uint64_t offset = 0;  ///< in the file
    std::uint64_t start = 0;   ///< in the range
    std::size_t bytes = 0;
  };
  [[nodiscard]] std::vector<Piece> pieces(std::uint64_t offset, std::size_t bytes) const;

  [[nodiscard]] std::size_t count() const { return files_.size(); }
  [[nodiscard]] const io::File& file(std::size_t index) const { return files_[index]; }
  [[nodiscard]] bool direct() const;

 private:
  std::vector<io::File> files_;
};

}  // namespace ration::offload

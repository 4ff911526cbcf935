#pragma once
// A file that appears whole or not at all: made under another name beside its own, safe on disk
// before it is renamed.

#include <filesystem>
#include <optional>

#include "io/behind.hpp"

namespace ration::checkpoint {

class OutputFile {
 public:
  /// Chooses the temporary name; the folder must exist. Throws InvalidArgument when it does not.
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();  ///< Removes what was not committed.
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::filesystem::path& temporary() const { return temporary_; }

  /// Makes it as an empty file, or opens what somebody made at `temporary()`.
  void create();
  void open() { file_.emplace(temporary_, io::Access::read_write); }
  [[nodiscard]] const io::BlockFile& file() const { return *file_; }

  /// Makes the data safe and closes.
  void finish();
  /// Gives it its name, in place of what had it.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::optional<io::BlockFile> file_;
};

}  // namespace ration::checkpoint

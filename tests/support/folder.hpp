#pragma once
// A folder of a test's own.

#include <cstdlib>
#include <filesystem>
#include <string>

namespace ration::test {

/// A folder that is gone afterwards.
class Folder {
 public:
  Folder() {
    std::string pattern = std::filesystem::temp_directory_path() / "ration-test-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const {
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace ration::test

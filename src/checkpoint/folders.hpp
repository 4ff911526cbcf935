#pragma once
// The folders of a checkpoint root and their life: made under a temporary name, whole once renamed,
// pruned by a rename away. Rank 0's business, but for `check_shared`.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ration::checkpoint {

/// "step-00001200", "step-00001200-r2": the same step saved again after going back.
struct StepFolder {
  std::int64_t step = 0;
  int generation = 1;
  std::filesystem::path path;
};

/// Committed steps of a root, ascending by step, then generation. Anything else in it is passed
/// over. Throws IoError when the root cannot be read; empty when it does not exist.
std::vector<StepFolder> list_steps(const std::filesystem::path& root);

/// What `path` is: a step's folder itself, or by its name inside a root. False for anything else.
bool parse_step_name(std::string_view name, StepFolder& folder);

/// A save under way: a temporary folder with `owner` and `nonce` files in it. Removed by the
/// destructor unless committed.
class SaveFolder {
 public:
  /// Makes the root where it is missing, removes temporary folders and trash whose owner is known
  /// to be dead, checks that `bytes` fit, and makes the temporary folder. Throws IoError.
  SaveFolder(const std::filesystem::path& root, std::int64_t step, std::uint64_t bytes);
  ~SaveFolder();
  SaveFolder(const SaveFolder&) = delete;
  SaveFolder& operator=(const SaveFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::string& nonce() const { return nonce_; }

  /// Writes the manifest, renames the folder to its step's name (of a new generation where that is
  /// taken) and makes that safe. When it returns the step is committed.
  StepFolder commit(std::string_view manifest_text);

 private:
  std::filesystem::path root_;
  std::filesystem::path path_;
  std::string nonce_;
  std::int64_t step_ = 0;
  bool committed_ = false;
};

/// On every rank: opens the nonce file of rank 0's folder and compares, for a second at most.
/// Throws IoError "FOLDER is not shared with host HOST".
void check_shared(const std::filesystem::path& folder, std::string_view nonce);

/// Points LATEST at the step. A hint: errors are logged, not thrown.
void hint_latest(const std::filesystem::path& root, const StepFolder& folder) noexcept;

/// Removes all but the `keep` newest steps (at least 2; 0 keeps all), and of them the former
/// generations; only folders that hold a manifest of ours, and never the one just committed: after
/// going back it is not the newest. Each is renamed to a trash name first. Errors are logged, not
/// thrown.
void prune(const std::filesystem::path& root, int keep, const StepFolder& committed) noexcept;

}  // namespace ration::checkpoint

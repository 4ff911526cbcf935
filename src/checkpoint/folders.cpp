#include "checkpoint/folders.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <random>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "checkpoint/manifest.hpp"
#include "checkpoint/owner.hpp"
#include "core/log.hpp"
#include "core/timeout.hpp"
#include "io/file.hpp"

namespace ration::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kTrash = ".trash-";
constexpr std::string_view kOwner = "owner";
constexpr std::string_view kNonce = "nonce";
constexpr std::uint64_t kRoom = std::uint64_t{16} << 20;  ///< for tables, HDF5 and the manifest

std::string random_hex() {
  std::random_device device;
  std::string text;
  for (int i = 0; i < 4; ++i) text += fmt::format("{:08x}", device() & 0xffffffffu);
  return text;
}

std::string step_name(std::int64_t step, int generation) {
  std::string name = fmt::format("step-{:08}", step);
  if (generation > 1) name += fmt::format("-r{}", generation);
  return name;
}

void write_small(const fs::path& path, std::string_view text) {
  io::File file(path, io::Access::write_new);
  file.write(0, std::as_bytes(std::span(text.data(), text.size())));
  file.synchronize();
  file.close();
}

// The owner last: what a crash in the middle leaves is removed by the next save.
void remove_owned(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> contents;
  for (fs::directory_iterator entry(folder, error), end; entry != end; entry.increment(error))
    contents.push_back(entry->path());
  for (const fs::path& path : contents) {
    if (!error && path.filename() != kOwner) fs::remove_all(path, error);
  }
  if (!error) fs::remove_all(folder, error);
  if (error) log::warning("{}: removing it: {}", folder.string(), error.message());
}

// Whatever has that prefix and an owner that is known to be dead.
void remove_left_overs(const fs::path& root) {
  std::error_code error;
  for (fs::directory_iterator entry(root, error), end; entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kTemporary) && !name.starts_with(kTrash)) continue;
    std::error_code unknown;
    if (entry->is_symlink(unknown) || !entry->is_directory(unknown)) continue;
    try {
      if (!is_known_dead(io::read_file(entry->path() / kOwner, 4096))) continue;
    } catch (const IoError&) {
      continue;  // no owner: its maker may be about to write one
    }
    log::info("{}: removed, its process is dead", entry->path().string());
    remove_owned(entry->path());
  }
}

// Whether it is a checkpoint of ours: never another's folder of the same name.
bool is_ours(const fs::path& folder) {
  try {
    const io::File file(folder / kManifestName, io::Access::read);
    const std::string mark = fmt::format("{{\"format\": \"{}\"", kFormat);
    std::string begin(mark.size(), '\0');
    file.read(0, std::as_writable_bytes(std::span(begin.data(), begin.size())));
    return begin == mark;
  } catch (const IoError&) {
    return false;
  }
}

void remove_step(const fs::path& root, const fs::path& folder) {
  // First no step any more, then gone: a reader meets it whole or not at all.
  const fs::path trash =
      root / fmt::format("{}{}-{}", kTrash, folder.filename().string(), random_hex());
  io::replace_file(folder / kOwner, own_identity());
  io::rename(folder, trash);
  remove_owned(trash);
}

}  // namespace

bool parse_step_name(std::string_view name, StepFolder& folder) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return false;
  const char* const end = name.data() + name.size();
  const auto step = std::from_chars(name.data() + kPrefix.size(), end, folder.step);
  if (step.ec != std::errc() || folder.step < 0) return false;
  folder.generation = 1;
  if (step.ptr != end) {
    const std::string_view rest(step.ptr, static_cast<std::size_t>(end - step.ptr));
    if (!rest.starts_with("-r")) return false;
    const auto generation = std::from_chars(rest.data() + 2, end, folder.generation);
    if (generation.ec != std::errc() || generation.ptr != end || folder.generation < 2)
      return false;
  }
  return name == step_name(folder.step, folder.generation);
}

namespace {

// In no order.
std::vector<StepFolder> list_once(const fs::path& root, std::error_code& error) {
  std::vector<StepFolder> steps;
  fs::directory_iterator entries(root, error);
  if (error == std::errc::no_such_file_or_directory) error.clear();
  // An error ends the iteration as the last entry does.
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    StepFolder folder;
    if (!parse_step_name(entries->path().filename().string(), folder)) continue;
    const fs::file_status status = entries->symlink_status(error);
    if (status.type() == fs::file_type::not_found) error.clear();  // pruned just now
    if (error) break;
    if (status.type() != fs::file_type::directory) continue;
    folder.path = entries->path();
    steps.push_back(std::move(folder));
  }
  return steps;
}

}  // namespace

std::vector<StepFolder> list_steps(const fs::path& root) {
  // Network file systems say ESTALE for what another host has just replaced; its name leads on.
  constexpr int kTries = 10;
  std::vector<StepFolder> steps;
  std::error_code error;
  for (int tries = 0; tries < kTries; ++tries) {
    if (tries > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    steps = list_once(root, error);
    if (error.value() != ESTALE) break;
  }
  if (error) throw IoError(fmt::format("{}: {}", root.string(), error.message()));
  std::sort(steps.begin(), steps.end(), [](const StepFolder& a, const StepFolder& b) {
    return std::tie(a.step, a.generation) < std::tie(b.step, b.generation);
  });
  return steps;
}

SaveFolder::SaveFolder(const fs::path& root, std::int64_t step, std::uint64_t bytes)
    : root_(root), nonce_(random_hex()), step_(step) {
  std::error_code error;
  fs::create_directories(root, error);
  if (error) throw IoError(fmt::format("{}: making it: {}", root.string(), error.message()));
  remove_left_overs(root);
  const std::uint64_t room = io::free_space(root);
  if (room < bytes + kRoom) {
    throw IoError(fmt::format("{}: a save of {} bytes does not fit, {} are free", root.string(),
                              bytes + kRoom, room));
  }
  path_ = root / fmt::format("{}{:08}-{}", kTemporary, step, nonce_);
  if (::mkdir(path_.c_str(), 0777) != 0) io::fail(path_, "making it", errno);
  try {
    write_small(path_ / kOwner, own_identity());
    write_small(path_ / kNonce, nonce_);
    io::synchronize_folder(path_);
    io::synchronize_folder(root_);
  } catch (...) {
    fs::remove_all(path_, error);
    throw;
  }
}

SaveFolder::~SaveFolder() {
  if (!committed_) remove_owned(path_);
}

StepFolder SaveFolder::commit(std::string_view manifest_text) {
  write_small(path_ / kManifestName, manifest_text);
  io::synchronize_folder(path_);
  StepFolder folder{.step = step_};
  for (const StepFolder& there : list_steps(root_)) {
    if (there.step == step_) folder.generation = there.generation + 1;
  }
  for (;; ++folder.generation) {
    folder.path = root_ / step_name(step_, folder.generation);
    // Never over what another job has just put there.
    if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, folder.path.c_str(), RENAME_NOREPLACE) == 0)
      break;
    if (errno == EEXIST) continue;
    if (errno == EINTR) {
      --folder.generation;
      continue;
    }
    // A file system without it: a folder is never renamed over one that holds something.
    if (errno != EINVAL && errno != ENOSYS)
      io::fail(path_, fmt::format("renaming it to {}", folder.path.string()), errno);
    if (::rename(path_.c_str(), folder.path.c_str()) == 0) break;
    if (errno != EEXIST && errno != ENOTEMPTY)
      io::fail(path_, fmt::format("renaming it to {}", folder.path.string()), errno);
  }
  committed_ = true;
  for (const std::string_view name : {kOwner, kNonce}) ::unlink((folder.path / name).c_str());
  try {
    io::synchronize_folder(root_);
  } catch (const IoError& error) {
    // It is there and whole; a power cut may still undo the name.
    log::warning("step {} is saved, but {}", step_, error.what());
  }
  return folder;
}

void check_shared(const fs::path& folder, std::string_view nonce) {
  // Network file systems may show a new name late; the other ranks wait.
  using Clock = std::chrono::steady_clock;
  const auto deadline =
      Clock::now() + std::min<Clock::duration>(operation_timeout() / 4, std::chrono::seconds(1));
  do {
    try {
      if (io::read_file(folder / kNonce, 64) == nonce) return;
    } catch (const IoError&) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  } while (Clock::now() < deadline);
  throw IoError(fmt::format("{} is not shared with host {}", folder.string(), host_name()));
}

void hint_latest(const fs::path& root, const StepFolder& folder) noexcept {
  try {
    io::replace_file(root / "LATEST", folder.path.filename().string() + "\n");
  } catch (const std::exception& error) {
    log::warning("LATEST is not up to date: {}", error.what());
  }
}

void prune(const fs::path& root, int keep, const StepFolder& committed) noexcept {
  if (keep == 0) return;
  try {
    std::vector<StepFolder> steps = list_steps(root);
    std::reverse(steps.begin(), steps.end());
    int kept = 1;  // the one just committed
    std::int64_t last = -1;
    for (const StepFolder& folder : steps) {
      if (folder.step == committed.step && folder.generation == committed.generation) {
        last = folder.step;
        continue;
      }
      if (!is_ours(folder.path)) continue;
      if (folder.step != last && kept < std::max(keep, 2)) {
        last = folder.step;
        ++kept;
        continue;
      }
      remove_step(root, folder.path);
    }
  } catch (const std::exception& error) {
    log::warning("old steps are not pruned: {}", error.what());
  }
}

}  // namespace ration::checkpoint

#include "checkpoint/output_file.hpp"

#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include <ration/error.hpp>

namespace ration::checkpoint {

OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)) {
  if (!path_.has_filename() || std::filesystem::is_directory(path_))
    throw InvalidArgument(fmt::format("{}: is a folder; give a file's name", path_.string()));
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  if (!std::filesystem::is_directory(folder))
    throw InvalidArgument(fmt::format("{}: there is no such folder", folder.string()));
  temporary_ = folder / fmt::format(".{}.{}.tmp", path_.filename().string(), ::getpid());
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::move(other.file_)) {}

OutputFile::~OutputFile() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove(temporary_, ignored);
}

void OutputFile::create() {
  io::File(temporary_, io::Access::write_new).close();
  open();
}

void OutputFile::finish() {
  file_->buffered().synchronize();
  file_.reset();
}

void OutputFile::commit() {
  io::rename(temporary_, path_);
  temporary_.clear();
  io::synchronize_folder(path_.has_parent_path() ? path_.parent_path() : ".");
}

}  // namespace ration::checkpoint

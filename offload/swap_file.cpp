#include "offload/swap_file.hpp"

#include <algorithm>
#include <random>

#include <fmt/format.h>
#include <unistd.h>

#include <ration/error.hpp>

namespace ration::offload {
namespace {

constexpr std::uint64_t kStripe = std::uint64_t{1} << 20;

io::File make_file(const std::filesystem::path& folder, std::uint64_t bytes, bool direct) {
  std::random_device random;
  const std::filesystem::path path =
      folder / fmt::format(".ration-swap-{}-{:08x}{:08x}", getpid(), random(), random());
  io::File file(path, io::Access::write_new, direct ? io::Cache::direct : io::Cache::buffered);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  try {
    file.allocate(bytes);
  } catch (const IoError& error) {
    throw IoError(fmt::format("{}: a swap file of {} bytes is needed, {} bytes are free: {}",
                              folder.string(), bytes, io::free_space(folder), error.what()));
  }
  return file;
}

}  // namespace

SwapFiles::SwapFiles(const std::vector<std::filesystem::path>& folders, std::uint64_t bytes,
                     bool direct) {
  if (folders.empty()) throw InvalidArgument("offload: no folder is given for swap files");
  const std::uint64_t stripes = (bytes + kStripe - 1) / kStripe;
  const std::uint64_t in_file = (stripes + folders.size() - 1) / folders.size();
  for (const std::filesystem::path& folder : folders) {
    const std::uint64_t size = folders.size() == 1 ? bytes : in_file * kStripe;
    files_.push_back(make_file(folder, size, direct));
  }
}

std::vector<SwapFiles::Piece> SwapFiles::pieces(std::uint64_t offset, std::size_t bytes) const {
  if (files_.size() == 1) return {{.file = 0, .offset = offset, .start = 0, .bytes = bytes}};
  std::vector<Piece> pieces;
  for (std::uint64_t start = 0; start < bytes;) {
    const std::uint64_t place = offset + start;
    const std::uint64_t stripe = place / kStripe;
    const std::uint64_t within = place % kStripe;
    const std::uint64_t length = std::min<std::uint64_t>(kStripe - within, bytes - start);
    pieces.push_back({.file = stripe % files_.size(),
                      .offset = stripe / files_.size() * kStripe + within,
                      .start = start,
                      .bytes = length});
    start += length;
  }
  return pieces;
}

bool SwapFiles::direct() const {
  return std::all_of(files_.begin(), files_.end(), [](const auto& file) { return file.direct(); });
}

}  // namespace ration::offload

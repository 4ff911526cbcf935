#include "checkpoint/verify.hpp"

#include <optional>

#include <ration/error.hpp>

#include "checkpoint/sweep.hpp"

namespace ration::checkpoint {
namespace {

// The text without the file's name in front, which the fault says already.
std::string reason_of(const Error& error, const std::filesystem::path& file) {
  const std::string text = error.what();
  const std::string prefix = file.string() + ": ";
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

std::uint64_t total_of(const Manifest& manifest) {
  std::uint64_t total = 0;
  for (const ShardEntry& shard : manifest.shards) total += shard.size;
  return total;
}

}  // namespace

Verdict verify(const std::filesystem::path& folder, const Progress& progress) {
  Verdict verdict;
  std::optional<Manifest> manifest;
  try {
    manifest = read_manifest(folder);
  } catch (const Error& error) {
    const std::filesystem::path file = folder / kManifestName;
    verdict.faults.push_back({file.string(), reason_of(error, file)});
    return verdict;
  }
  const std::uint64_t total = total_of(*manifest);
  std::uint64_t before = 0;
  Coverage coverage;
  for (std::size_t rank = 0; rank < manifest->shards.size(); ++rank) {
    const std::filesystem::path file = folder / manifest->shards[rank].file;
    std::uint64_t done = 0;
    try {
      const ShardReader reader(folder, *manifest, static_cast<int>(rank));
      reader.check_rest();
      for (const PlacedSlice& slice : reader.slices()) {
        coverage.add(slice);
        const ShardReader::Range whole{.first = 0, .count = slice.length};
        reader.read(slice, std::span(&whole, 1),
                    [&](std::int64_t, std::int64_t count, const std::byte*) {
                      done += static_cast<std::uint64_t>(count) * size_of(slice.dtype);
                      if (progress) progress(before + done, total);
                    });
      }
      verdict.bytes += done;
    } catch (const Error& error) {
      verdict.faults.push_back({file.string(), reason_of(error, file)});
    }
    before += manifest->shards[rank].size;
    if (progress) progress(before, total);
  }
  if (!verdict.faults.empty()) return verdict;  // what a broken file holds is not known
  try {
    coverage.check(
        *manifest, [](int, int) { return true; }, folder.string());
  } catch (const Error& error) {
    verdict.faults.push_back({folder.string(), reason_of(error, folder)});
  }
  return verdict;
}

}  // namespace ration::checkpoint

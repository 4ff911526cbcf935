#include "checkpoint/state_reader.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "checkpoint/sweep.hpp"

namespace ration::checkpoint {

namespace {
constexpr std::size_t kMostOpen = 64;
}

StateReader::StateReader(std::filesystem::path folder, const Manifest& manifest)
    : folder_(std::move(folder)), manifest_(manifest), places_(flats_of(manifest)) {}

StateReader::Open& StateReader::shard(int rank) {
  auto found = open_.find(rank);
  if (found == open_.end()) {
    if (open_.size() == kMostOpen) {
      open_.erase(std::min_element(open_.begin(), open_.end(), [](const auto& a, const auto& b) {
        return a.second.used < b.second.used;
      }));
    }
    found = open_.emplace(rank, Open{ShardReader(folder_, manifest_, rank), {}, 0}).first;
    for (const PlacedSlice& slice : found->second.reader.slices())
      found->second.slices[{slice.flat, slice.kind}] = &slice;
    if (checked_.insert(rank).second) found->second.reader.check_rest();
  }
  found->second.used = ++clock_;
  return found->second;
}

void StateReader::read(int flat, int kind, std::int64_t first, std::int64_t count, std::byte* to) {
  const FlatEntry& entry = flat_at(manifest_, places_[static_cast<std::size_t>(flat)]);
  const std::size_t element = size_of(entry.kinds[static_cast<std::size_t>(kind)].dtype);
  const std::int64_t length = shard_length(entry, static_cast<int>(manifest_.shards.size()));
  while (count > 0) {
    const std::int64_t rank = first / length;
    const std::int64_t n = std::min(count, (rank + 1) * length - first);
    read_from(static_cast<int>(rank), flat, kind, first, n, to);
    first += n;
    count -= n;
    to += static_cast<std::size_t>(n) * element;
  }
}

void StateReader::read_from(int rank, int flat, int kind, std::int64_t first, std::int64_t count,
                            std::byte* to) {
  const auto is_kept = [&](std::int64_t place) {
    return kept_.flat == flat && kept_.kind == kind && place >= kept_.first &&
           place < kept_.first + kept_.count;
  };
  const Open& open = shard(rank);
  const auto found = open.slices.find({flat, kind});
  if (found == open.slices.end() || first < found->second->start ||
      first + count > found->second->start + found->second->length) {
    throw CorruptCheckpoint(
        fmt::format("{}: elements {} to {} of flat {} should be in it and are not",
                    open.reader.path().string(), first, first + count, flat));
  }
  const PlacedSlice& slice = *found->second;
  const std::size_t element = size_of(slice.dtype);
  const auto block = static_cast<std::int64_t>(kBlockBytes / element);
  const std::int64_t end = first + count;
  while (first < end) {
    if (is_kept(first)) {
      const std::int64_t n = std::min(end, kept_.first + kept_.count) - first;
      std::memcpy(to, kept_.bytes.data() + static_cast<std::size_t>(first - kept_.first) * element,
                  static_cast<std::size_t>(n) * element);
      first += n;
      to += static_cast<std::size_t>(n) * element;
      continue;
    }
    const std::int64_t begin = (first - slice.start) / block * block;  // in the slice
    const ShardReader::Range whole{.first = begin, .count = std::min(block, slice.length - begin)};
    kept_.flat = -1;  // until it is read
    kept_.bytes.resize(static_cast<std::size_t>(whole.count) * element);
    open.reader.read(slice, std::span(&whole, 1),
                     [&](std::int64_t place, std::int64_t n, const std::byte* from) {
                       std::memcpy(
                           kept_.bytes.data() + static_cast<std::size_t>(place - begin) * element,
                           from, static_cast<std::size_t>(n) * element);
                     });
    kept_ = {flat, kind, slice.start + begin, whole.count, std::move(kept_.bytes)};
  }
}

}  // namespace ration::checkpoint

#include "checkpoint/manifest.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace ration::checkpoint {

std::int64_t ParameterEntry::count() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

std::vector<FlatPlace> flats_of(const Manifest& manifest) {
  std::vector<FlatPlace> places;
  for (std::size_t o = 0; o < manifest.optimizers.size(); ++o) {
    const auto& units = manifest.optimizers[o].units;
    for (std::size_t u = 0; u < units.size(); ++u) {
      for (std::size_t f = 0; f < units[u].flats.size(); ++f)
        places.push_back({static_cast<int>(o), static_cast<int>(u), static_cast<int>(f)});
    }
  }
  return places;
}

const FlatEntry& flat_at(const Manifest& manifest, const FlatPlace& place) {
  return manifest.optimizers[static_cast<std::size_t>(place.optimizer)]
      .units[static_cast<std::size_t>(place.unit)]
      .flats[static_cast<std::size_t>(place.flat)];
}

std::string shard_name(int rank, int world) {
  return fmt::format("rank-{:05}-of-{:05}.h5", rank, world);
}

}  // namespace ration::checkpoint

#include <ration/sampler.hpp>

#include <numeric>
#include <random>
#include <utility>

#include <fmt/format.h>

#include <ration/error.hpp>

namespace ration {
namespace {

// torch.randperm on the CPU, from a torch.Generator seeded with `seed` (PyTorch's
// aten/src/ATen/native/TensorFactories.cpp): a Fisher-Yates shuffle from the front with the plain
// remainder of MT19937's output; where that would be visibly uneven, its inside-out variant
// with two words an item.
std::vector<std::int64_t> random_permutation(std::uint64_t size, std::uint64_t seed) {
  constexpr std::uint64_t kLarge = 0xffffffffu / 20;
  std::vector<std::int64_t> order(size);
  std::mt19937 generator(static_cast<std::uint32_t>(seed));
  if (size < kLarge) {
    std::iota(order.begin(), order.end(), std::int64_t{0});
    for (std::uint64_t i = 0; i + 1 < size; ++i) {
      std::swap(order[i], order[i + generator() % (size - i)]);
    }
    return order;
  }
  for (std::uint64_t i = 0; i < size; ++i) {
    const std::uint64_t upper = generator();
    const std::uint64_t place = (upper << 32 | generator()) % (i + 1);
    order[i] = order[place];
    order[place] = static_cast<std::int64_t>(i);
  }
  return order;
}

}  // namespace

DistributedSampler::DistributedSampler(std::int64_t size, int rank, int world, Options options)
    : items_(size), rank_(rank), world_(world), options_(options) {
  if (size < 0) {
    throw InvalidArgument(fmt::format("DistributedSampler: a data set of {} items", size));
  }
  if (world < 1 || rank < 0 || rank >= world) {
    throw InvalidArgument(
        fmt::format("DistributedSampler: rank {} of {}; it must be in [0, world)", rank, world));
  }
}

std::int64_t DistributedSampler::size() const {
  const std::int64_t whole = items_ / world_;
  return options_.drop_last || items_ % world_ == 0 ? whole : whole + 1;
}

std::vector<std::int64_t> DistributedSampler::indices() const {
  const std::int64_t count = size();
  std::vector<std::int64_t> order;
  if (options_.shuffle && count > 0) {
    order = random_permutation(static_cast<std::uint64_t>(items_), options_.seed + epoch_);
  }
  std::vector<std::int64_t> own(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t place = (rank_ + i * world_) % items_;  // past the end: again from the front
    own[static_cast<std::size_t>(i)] =
        options_.shuffle ? order[static_cast<std::size_t>(place)] : place;
  }
  return own;
}

}  // namespace ration

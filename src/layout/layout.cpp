#include "layout/layout.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ration/error.hpp>

#include "core/align.hpp"

namespace ration {

std::int64_t Layout::elements() const {
  std::int64_t sum = 0;
  for (const ParameterInfo& parameter : parameters) sum += parameter.count;
  return sum;
}

std::int64_t count_elements(std::string_view name, const std::vector<std::int64_t>& shape) {
  // Room for padding and for 8-byte elements, so that no later product overflows.
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 64;
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size < 0) {
      throw InvalidArgument(fmt::format("parameter \"{}\": size {} in shape [{}] is negative", name,
                                        size, fmt::join(shape, ", ")));
    }
    if (size != 0 && count > kMost / size) {
      throw InvalidArgument(fmt::format("parameter \"{}\": shape [{}] has more than {} elements",
                                        name, fmt::join(shape, ", "), kMost));
    }
    count *= size;
  }
  return count;
}

void validate_name(std::string_view what, std::string_view name) {
  const auto refuse = [&](std::string_view why) {
    std::string shown;  // a text ends at a NUL for whoever prints it
    for (const char c : name) shown += c == '\0' ? std::string("\\0") : std::string(1, c);
    throw InvalidArgument(fmt::format("{} name \"{}\" {}", what, shown, why));
  };
  if (name.empty()) refuse("is empty; give it one");
  if (name.find('\0') != std::string_view::npos) refuse("holds a NUL character");
  if (name.front() == '/') refuse("begins with \"/\"; names end up in checkpoints as paths");
  if (name.find("..") != std::string_view::npos) {
    refuse("holds \"..\"; names end up in checkpoints as paths");
  }
}

namespace {

int flat_for(Layout& layout, int unit, const ParameterInfo& parameter) {
  for (const int index : layout.units[unit].flats) {
    const FlatInfo& flat = layout.flats[index];
    if (flat.dtype == parameter.dtype && flat.trainable == parameter.trainable) return index;
  }
  layout.flats.push_back(
      {.unit = unit, .dtype = parameter.dtype, .trainable = parameter.trainable});
  const int index = static_cast<int>(layout.flats.size()) - 1;
  layout.units[unit].flats.push_back(index);
  return index;
}

}  // namespace

void lay_out(Layout& layout) {
  layout.flats.clear();
  for (int u = 0; u < static_cast<int>(layout.units.size()); ++u) {
    layout.units[u].flats.clear();
    for (const int p : layout.units[u].parameters) {
      ParameterInfo& parameter = layout.parameters[p];
      parameter.count = count_elements(parameter.name, parameter.shape);
      parameter.flat = flat_for(layout, u, parameter);
      FlatInfo& flat = layout.flats[parameter.flat];
      parameter.offset = round_up(flat.length, kAlignElements);
      flat.length = parameter.offset + parameter.count;
      flat.parameters.push_back(p);
    }
  }
  for (FlatInfo& flat : layout.flats) {
    const std::int64_t world = layout.world;
    flat.shard = round_up((flat.length + world - 1) / world, kAlignElements);
  }
}

std::vector<Piece> pieces(const Layout& layout, const FlatInfo& flat, std::int64_t begin,
                          std::int64_t end) {
  std::vector<Piece> result;
  for (const int p : flat.parameters) {
    const ParameterInfo& parameter = layout.parameters[p];
    const std::int64_t first = std::max(begin, parameter.offset);
    const std::int64_t last = std::min(end, parameter.offset + parameter.count);
    if (first < last) {
      result.push_back({.parameter = p,
                        .first = first - parameter.offset,
                        .flat_first = first,
                        .count = last - first});
    }
  }
  return result;
}

}  // namespace ration

// What ranks compare at construction, and how a difference is put into words.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/record.hpp"
#include "layout/layout.hpp"

namespace ration {
namespace {

struct Described {
  std::string name = {};
  std::string unit = {};
  std::vector<std::int64_t> shape = {};
  DType dtype{};
  bool trainable = true;
  int group = 0;
  std::string tied_to = {};
  bool keep_whole = false;
};

void put(RecordWriter& writer, const Described& d) {
  writer.put_text(d.name);
  writer.put_text(d.unit);
  writer.put_list(d.shape);
  writer.put(d.dtype);
  writer.put(d.trainable);
  writer.put(d.group);
  writer.put_text(d.tied_to);
  writer.put(d.keep_whole);
}

std::vector<Described> read(const std::vector<std::byte>& bytes) {
  RecordReader reader(bytes);
  std::vector<Described> result;
  while (!reader.at_end()) {
    Described d;
    d.name = reader.get_text();
    d.unit = reader.get_text();
    reader.get_list(d.shape);
    d.dtype = reader.get<DType>();
    d.trainable = reader.get<bool>();
    d.group = reader.get<int>();
    d.tied_to = reader.get_text();
    d.keep_whole = reader.get<bool>();
    result.push_back(std::move(d));
  }
  return result;
}

}  // namespace

std::vector<std::byte> describe(const Layout& layout) {
  std::vector<std::byte> bytes;
  RecordWriter writer(bytes);
  for (int u = 0; u < static_cast<int>(layout.units.size()); ++u) {
    const UnitInfo& unit = layout.units[u];
    for (const int p : unit.parameters) {
      const ParameterInfo& info = layout.parameters[p];
      put(writer, {.name = info.name,
                   .unit = unit.name,
                   .shape = info.shape,
                   .dtype = info.dtype,
                   .trainable = info.trainable,
                   .group = info.group,
                   .keep_whole = unit.keep_whole});
    }
    // A unit of no parameters counts too: units are known by their number.
    if (unit.parameters.empty()) {
      put(writer, {.name = fmt::format("(none, of unit {})", unit.name),
                   .unit = unit.name,
                   .keep_whole = unit.keep_whole});
    }
    for (const TiedName& tied : layout.tied) {
      if (tied.unit != u) continue;
      put(writer, {.name = tied.name,
                   .unit = unit.name,
                   .shape = {},
                   .tied_to = layout.parameters[tied.parameter].name,
                   .keep_whole = unit.keep_whole});
    }
  }
  return bytes;
}

std::string explain_difference(int rank, const std::vector<std::byte>& theirs,
                               const std::vector<std::byte>& rank0) {
  const std::vector<Described> a = read(rank0);
  const std::vector<Described> b = read(theirs);
  constexpr std::string_view advice = "register the same parameters in the same order on all ranks";
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i >= b.size()) {
      return fmt::format("rank {}: parameter \"{}\" is missing, rank 0 registers it; {}", rank,
                         a[i].name, advice);
    }
    if (i >= a.size()) {
      return fmt::format("rank {}: parameter \"{}\" is registered, rank 0 has no such; {}", rank,
                         b[i].name, advice);
    }
    const auto differs = [&](std::string_view what, const auto& there, const auto& here) {
      return fmt::format("rank {}: parameter \"{}\" has {} {}, rank 0 has {}; {}", rank, b[i].name,
                         what, there, here, advice);
    };
    if (a[i].name != b[i].name) {
      return fmt::format("rank {}: parameter \"{}\" is number {}, rank 0 has \"{}\" there; {}",
                         rank, b[i].name, i, a[i].name, advice);
    }
    if (a[i].shape != b[i].shape) {
      return differs("shape", fmt::format("[{}]", fmt::join(b[i].shape, ", ")),
                     fmt::format("[{}]", fmt::join(a[i].shape, ", ")));
    }
    if (a[i].dtype != b[i].dtype) return differs("type", name_of(b[i].dtype), name_of(a[i].dtype));
    if (a[i].unit != b[i].unit) return differs("unit", b[i].unit, a[i].unit);
    if (a[i].trainable != b[i].trainable)
      return differs("trainable", b[i].trainable, a[i].trainable);
    if (a[i].group != b[i].group) return differs("group", b[i].group, a[i].group);
    if (a[i].tied_to != b[i].tied_to) return differs("tied_to", b[i].tied_to, a[i].tied_to);
    if (a[i].keep_whole != b[i].keep_whole)
      return differs("keep_whole", b[i].keep_whole, a[i].keep_whole);
  }
  return fmt::format("rank {}: the layout differs from rank 0's", rank);
}

}  // namespace ration

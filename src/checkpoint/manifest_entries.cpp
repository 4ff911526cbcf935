#include "checkpoint/manifest_entries.hpp"

#include <charconv>
#include <set>

#include <ration/error.hpp>

#include "core/align.hpp"
#include "layout/layout.hpp"

namespace ration::checkpoint::parsing {
namespace {

constexpr std::size_t kMostKinds = 8;
constexpr std::int64_t kMostElements = std::numeric_limits<std::int64_t>::max() / 64;

std::string checked_name(std::string_view what, std::string name) {
  try {
    validate_name(what, name);
  } catch (const InvalidArgument& error) {
    refuse(error.what());
  }
  return name;
}

DType parse_dtype(const std::string& name) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    if (name == name_of(type)) return type;
  }
  refuse(fmt::format("\"{}\" is no type of parameters and states", name));
}

void check_kinds(const FlatEntry& flat) {
  if (flat.kinds.empty() || flat.kinds[0].name != "parameter" || flat.kinds[0].dtype != flat.dtype)
    refuse("the first kind of a flat must be \"parameter\", of the flat's type");
  if (flat.kinds.size() > kMostKinds)
    refuse(
        fmt::format("a flat has {} kinds, at most {} are possible", flat.kinds.size(), kMostKinds));
  std::set<std::string_view> names;
  for (const KindEntry& kind : flat.kinds) {
    if (!names.insert(kind.name).second) refuse(fmt::format("kind \"{}\" comes twice", kind.name));
    if (kind.name == "master" && kind.dtype != DType::f32) refuse("masters are f32");
  }
}

Extent parse_extent(Json json, std::uint64_t size) {
  Fields fields(json, "an extent");
  Extent extent;
  extent.offset = fields.take<std::uint64_t>("offset");
  extent.length = fields.take<std::uint64_t>("length");
  extent.checksum = fields.take_hex("checksum");
  fields.end();
  if (extent.length > size || extent.offset > size - extent.length)
    refuse(
        fmt::format("{} bytes at {} are not in a file of {}", extent.length, extent.offset, size));
  return extent;
}

}  // namespace

std::uint64_t parse_hex(const std::string& text, std::string_view what) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size() ||
      text.find_first_of("ABCDEF-+") != std::string::npos)
    refuse(fmt::format("{} is no checksum of 16 hex digits", what));
  return value;
}

ParameterEntry parse_parameter(Json& json) {
  Fields fields(json, "a parameter");
  ParameterEntry p;
  p.name = checked_name("parameter", fields.take<std::string>("name"));
  for (const Json& size : fields.take_list("shape"))
    p.shape.push_back(fields.whole<std::int64_t>(size, "shape"));
  try {
    count_elements(p.name, p.shape);
  } catch (const InvalidArgument& error) {
    refuse(error.what());
  }
  p.offset = fields.take<std::int64_t>("offset");
  p.group = fields.take<int>("group");
  p.step_count = fields.take<std::int64_t>("step_count");
  p.masked = fields.take<bool>("masked");
  fields.end();
  return p;
}

KindEntry parse_kind(Json& json) {
  Fields fields(json, "a kind");
  KindEntry kind;
  kind.name = checked_name("kind", fields.take<std::string>("name"));
  kind.dtype = parse_dtype(fields.take<std::string>("dtype"));
  fields.end();
  return kind;
}

FlatEntry parse_flat(Json& json, std::vector<KindEntry> kinds,
                     std::vector<ParameterEntry> parameters) {
  Fields fields(json, "a flat");
  FlatEntry flat;
  flat.dtype = parse_dtype(fields.take<std::string>("dtype"));
  flat.trainable = fields.take<bool>("trainable");
  flat.length = fields.take<std::int64_t>("length");
  for (const char* list : {"kinds", "parameters"}) fields.take_list(list);
  fields.end();
  flat.kinds = std::move(kinds);
  check_kinds(flat);
  flat.parameters = std::move(parameters);
  std::int64_t end = 0;
  if (flat.length > kMostElements)
    refuse(fmt::format("a flat of {} elements is too long", flat.length));
  for (const ParameterEntry& p : flat.parameters) {
    if (p.offset % kAlignElements != 0 || p.offset < end || p.count() > flat.length ||
        p.offset > flat.length - p.count()) {
      refuse(fmt::format("parameter \"{}\" at {} does not fit into its flat of {}", p.name,
                         p.offset, flat.length));
    }
    end = p.offset + p.count();
  }
  if (end != flat.length)
    refuse(fmt::format("a flat of {} elements ends after {}", flat.length, end));
  return flat;
}

TiedEntry parse_tied(Json& json) {
  Fields fields(json, "a tied name");
  TiedEntry tied;
  tied.name = checked_name("parameter", fields.take<std::string>("name"));
  tied.parameter = fields.take<std::string>("parameter");
  fields.end();
  return tied;
}

UnitEntry parse_unit(Json& json, std::vector<TiedEntry> tied, std::vector<FlatEntry> flats) {
  Fields fields(json, "a unit");
  UnitEntry unit;
  unit.name = checked_name("unit", fields.take<std::string>("name"));
  for (const char* list : {"tied", "flats"}) fields.take_list(list);
  fields.end();
  unit.tied = std::move(tied);
  unit.flats = std::move(flats);
  return unit;
}

GroupEntry parse_group(Json& json) {
  Fields fields(json, "a group");
  GroupEntry group;
  group.rule = fields.take<std::string>("rule");
  const Json options = fields.take<Json>("options");
  fields.end();
  if (!options.is_object()) refuse("the options of a group are no object");
  for (const auto& [name, value] : options.items()) {
    if (!value.is_number()) refuse(fmt::format("option \"{}\" is no number", name));
    group.options[name] = value.get<double>();
  }
  return group;
}

OptimizerEntry parse_optimizer(Json& json, std::vector<GroupEntry> groups,
                               std::vector<UnitEntry> units) {
  Fields fields(json, "an optimizer");
  OptimizerEntry o;
  o.name = checked_name("optimizer", fields.take<std::string>("name"));
  o.stage = fields.take<int>("stage");
  o.steps = fields.take<std::int64_t>("steps");
  o.loss_scale = fields.take<double>("loss_scale");
  o.good_steps = fields.take<std::int64_t>("good_steps");
  for (const char* list : {"groups", "units"}) fields.take_list(list);
  fields.end();
  o.groups = std::move(groups);
  o.units = std::move(units);

  std::set<std::string_view> parameters, tied, names;
  for (const UnitEntry& unit : o.units) {
    if (!names.insert(unit.name).second) refuse(fmt::format("unit \"{}\" comes twice", unit.name));
    std::set<std::pair<DType, bool>> flats;
    for (const FlatEntry& flat : unit.flats) {
      if (!flats.emplace(flat.dtype, flat.trainable).second)
        refuse(fmt::format("unit \"{}\" has two flats of the same type", unit.name));
      for (const ParameterEntry& p : flat.parameters) {
        if (!parameters.insert(p.name).second)
          refuse(fmt::format("parameter \"{}\" comes twice", p.name));
        if (static_cast<std::size_t>(p.group) >= o.groups.size())
          refuse(fmt::format("parameter \"{}\" is of group {}, there are {}", p.name, p.group,
                             o.groups.size()));
      }
    }
  }
  for (const UnitEntry& unit : o.units) {
    for (const TiedEntry& t : unit.tied) {
      if (!parameters.contains(t.parameter))
        refuse(fmt::format("\"{}\" is tied to \"{}\", which is not there", t.name, t.parameter));
      if (parameters.contains(t.name) || !tied.insert(t.name).second)
        refuse(fmt::format("parameter \"{}\" comes twice", t.name));
    }
  }
  return o;
}

ShardEntry parse_shard(Json& json) {
  Fields fields(json, "a shard");
  ShardEntry shard;
  shard.file = fields.take<std::string>("file");
  shard.size = fields.take<std::uint64_t>("size");
  if (shard.size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    refuse(fmt::format("{} is too large", shard.file));
  shard.index = parse_extent(fields.take<Json>("index"), shard.size);
  shard.checksums = parse_extent(fields.take<Json>("checksums"), shard.size);
  shard.rest = fields.take_hex("rest");
  fields.end();
  return shard;
}

}  // namespace ration::checkpoint::parsing

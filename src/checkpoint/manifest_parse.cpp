// Reading a manifest that somebody may have tampered with: everything is checked before it is
// believed, in memory that does not depend on what it claims.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>
#include <xxhash.h>
#include <nlohmann/json.hpp>

#include <ration/error.hpp>

#include "checkpoint/base64.hpp"
#include "checkpoint/manifest.hpp"
#include "core/align.hpp"
#include "io/file.hpp"
#include "layout/layout.hpp"

namespace ration::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostDepth = 12;
constexpr std::size_t kMostPending = 20000;                 ///< values in the tree at a time
constexpr std::size_t kMostEntries = std::size_t{1} << 17;  ///< of all lists; see Converter
constexpr std::size_t kLongestString = (std::size_t{4} << 20) / 3 * 4 + 8;  ///< extra in base64
constexpr std::size_t kLongestKey = 4096;
constexpr std::size_t kLongestNumber = 64;
constexpr std::size_t kMostKinds = 8;
constexpr std::size_t kLongestReason = 500;  ///< a reason may quote what it refuses
constexpr std::int64_t kMostElements = std::numeric_limits<std::int64_t>::max() / 64;

// The reason alone; parse_manifest puts the place in front.
struct Refused {
  std::string reason;
};
[[noreturn]] void refuse(std::string reason) {
  throw Refused{std::move(reason)};
}

std::uint64_t parse_hex(const std::string& text, std::string_view what) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size() ||
      text.find_first_of("ABCDEF-+") != std::string::npos)
    refuse(fmt::format("{} is no checksum of 16 hex digits", what));
  return value;
}

// The fields of an object: each is taken once with its type, and nothing may be left.
class Fields {
 public:
  Fields(Json& object, std::string_view what) : object_(object), what_(what) {
    if (!object.is_object()) refuse(fmt::format("{} is no object", what));
  }
  template <class T>
  T take(const char* key) {
    const auto found = object_.find(key);
    if (found == object_.end()) refuse(fmt::format("{} has no \"{}\"", what_, key));
    Json value = std::move(*found);
    object_.erase(found);
    if constexpr (std::is_same_v<T, Json>) {
      return value;
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!value.is_string()) wrong(key, "a text");
      return value.get<std::string>();
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!value.is_boolean()) wrong(key, "true or false");
      return value.get<bool>();
    } else if constexpr (std::is_same_v<T, double>) {
      if (!value.is_number() || !std::isfinite(value.get<double>())) wrong(key, "a finite number");
      return value.get<double>();
    } else {
      return whole<T>(value, key);
    }
  }
  Json take_list(const char* key) {
    Json list = take<Json>(key);
    if (!list.is_array()) wrong(key, "a list");
    return list;
  }
  std::uint64_t take_hex(const char* key) {
    return parse_hex(take<std::string>(key), fmt::format("\"{}\" of {}", key, what_));
  }
  void end() const {
    if (!object_.empty())
      refuse(fmt::format("{} has an unknown key \"{}\"", what_, object_.begin().key()));
  }
  /// Not negative.
  template <class T>
  T whole(const Json& value, const char* key) const {
    if (!value.is_number_integer() ||
        (!value.is_number_unsigned() && value.get<std::int64_t>() < 0))
      wrong(key, "a whole number that is not negative");
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(std::numeric_limits<T>::max())) wrong(key, "smaller");
    return static_cast<T>(number);
  }

 private:
  [[noreturn]] void wrong(const char* key, std::string_view expected) const {
    refuse(fmt::format("\"{}\" of {} must be {}", key, what_, expected));
  }
  Json& object_;
  std::string_view what_;
};

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

Extra parse_extra(const Json& json) {
  if (!json.is_object()) refuse("\"extra\" is no object");
  Extra extra;
  for (const auto& [name, value] : json.items()) {
    if (value.is_string()) {
      extra[name] = value.get<std::string>();
      continue;
    }
    if (!value.is_object() || value.size() != 1 || !value.contains("base64") ||
        !value["base64"].is_string())
      refuse(fmt::format("extra \"{}\" is neither text nor base64", name));
    const auto bytes = from_base64(value["base64"].get<std::string>());
    if (!bytes) refuse(fmt::format("extra \"{}\" is no base64", name));
    extra[name] = *bytes;
  }
  return extra;
}

bool is_base64(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/' || c == '=';
  });
}

// Depth and the lengths of texts and numbers, before a parser allocates for them.
void scan(std::string_view text) {
  std::size_t depth = 0;
  std::size_t begin = 0;   // of the text or number
  std::size_t length = 0;  // of the text before
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
        length = i - begin;
        // The parser's error would hold it several times.
        if (length > kLongestText && !is_base64(text.substr(begin + 1, length - 1)))
          refuse("a text in it is too long");
        begin = i;
      }
      if (i - begin > kLongestString) refuse("a text in it is too long");
      continue;
    }
    if (std::string_view("+-.0123456789eE").find(c) == std::string_view::npos) begin = i;
    if (i - begin > kLongestNumber) refuse("a number in it is too long");
    if (c == '"') {
      in_string = true;
    } else if (c == ':') {
      if (length > kLongestKey) refuse("a key in it is too long");
    } else if (c == '[' || c == '{') {
      if (++depth > kMostDepth) refuse(fmt::format("it is nested more than {} deep", kMostDepth));
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
}

// Takes the elements of every list out of the tree as they come, so that it never grows. An entry
// takes more memory than the shortest text of it: their number is bounded too, where dimensions
// and options count in part.
class Converter {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    // Nothing may stay behind where everything is converted.
    if ((event == Event::value || event == Event::array_start) && list_at(depth) != List::none)
      refuse(
          fmt::format("\"{}\" holds something else", path_[static_cast<std::size_t>(depth) - 1]));
    if (event == Event::object_start) {
      keys_.emplace_back();
      pending_before_.push_back(pending_);
    } else if (event == Event::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) refuse(fmt::format("key \"{}\" comes twice", key));
      if (static_cast<std::size_t>(depth) < path_.size())
        path_[static_cast<std::size_t>(depth)] = key;
    } else if (event == Event::object_end) {
      keys_.pop_back();
      const std::size_t before = pending_before_.back();
      pending_before_.pop_back();
      if (convert(depth, parsed)) {
        if (++entries_ > kMostEntries) refuse(kTooMuch);
        pending_ = before;
        return false;
      }
    }
    if (++pending_ > kMostPending) refuse(kTooMuch);
    return true;
  }

  std::vector<OptimizerEntry> optimizers;
  std::vector<ShardEntry> shards;

 private:
  static constexpr const char* kTooMuch = "it holds more than a manifest does";
  enum class List : std::uint8_t {
    none,
    optimizers,
    groups,
    units,
    tied,
    flats,
    kinds,
    parameters,
    shards
  };

  [[nodiscard]] bool at(std::initializer_list<std::string_view> lists) const {
    std::size_t depth = 1;
    for (const std::string_view list : lists) {
      if (path_[depth] != list) return false;
      depth += 2;
    }
    return true;
  }

  // Which list a value at that depth is an element of.
  [[nodiscard]] List list_at(int depth) const {
    if (depth == 2 && at({"shards"})) return List::shards;
    if (depth == 8 && at({"optimizers", "units", "flats", "parameters"})) return List::parameters;
    if (depth == 8 && at({"optimizers", "units", "flats", "kinds"})) return List::kinds;
    if (depth == 6 && at({"optimizers", "units", "flats"})) return List::flats;
    if (depth == 6 && at({"optimizers", "units", "tied"})) return List::tied;
    if (depth == 4 && at({"optimizers", "units"})) return List::units;
    if (depth == 4 && at({"optimizers", "groups"})) return List::groups;
    if (depth == 2 && at({"optimizers"})) return List::optimizers;
    return List::none;
  }

  bool convert(int depth, Json& parsed) {
    switch (list_at(depth)) {
      case List::shards:
        shards.push_back(parse_shard(parsed));
        return true;
      case List::parameters:
        parameters_.push_back(parse_parameter(parsed));
        entries_ += parameters_.back().shape.size() / 4;
        return true;
      case List::kinds:
        kinds_.push_back(parse_kind(parsed));
        return true;
      case List::flats:
        flats_.push_back(
            parse_flat(parsed, std::exchange(kinds_, {}), std::exchange(parameters_, {})));
        return true;
      case List::tied:
        tied_.push_back(parse_tied(parsed));
        return true;
      case List::units:
        units_.push_back(parse_unit(parsed, std::exchange(tied_, {}), std::exchange(flats_, {})));
        return true;
      case List::groups:
        groups_.push_back(parse_group(parsed));
        entries_ += groups_.back().options.size() / 2;
        return true;
      case List::optimizers:
        optimizers.push_back(
            parse_optimizer(parsed, std::exchange(groups_, {}), std::exchange(units_, {})));
        return true;
      case List::none:
        return false;
    }
    return false;
  }

  std::vector<std::set<std::string>> keys_;
  std::array<std::string, kMostDepth> path_;  ///< the last key at each depth
  std::size_t pending_ = 0;
  std::vector<std::size_t> pending_before_;  ///< each open object
  std::size_t entries_ = 0;
  std::vector<GroupEntry> groups_;
  std::vector<KindEntry> kinds_;
  std::vector<TiedEntry> tied_;
  std::vector<ParameterEntry> parameters_;
  std::vector<FlatEntry> flats_;
  std::vector<UnitEntry> units_;
};

void check_shards(const Manifest& manifest, std::uint64_t world) {
  if (world == 0 || world != manifest.shards.size())
    refuse(fmt::format("world is {}, but there are {} shards", world, manifest.shards.size()));
  for (std::size_t rank = 0; rank < manifest.shards.size(); ++rank) {
    const std::string expected =
        shard_name(static_cast<int>(rank), static_cast<int>(manifest.shards.size()));
    if (manifest.shards[rank].file != expected) {
      refuse(fmt::format("rank {}'s file is called \"{}\", must be {}", rank,
                         manifest.shards[rank].file, expected));
    }
  }
}

Manifest parse(std::string_view text) {
  constexpr std::string_view kMark = "\"checksum\": \"";
  const std::size_t mark = text.rfind(kMark);
  const std::string_view tail = mark == std::string_view::npos ? "" : text.substr(mark);
  if (tail.size() != kMark.size() + 16 + 3 || !tail.ends_with("\"}\n"))
    refuse("it does not end with a checksum");
  const std::uint64_t said = parse_hex(std::string(tail.substr(kMark.size(), 16)), "\"checksum\"");
  const std::uint64_t found = XXH3_64bits(text.data(), mark);
  if (said != found) refuse(fmt::format("its checksum is {:016x}, it says {:016x}", found, said));
  scan(text);

  Converter converter;
  Json root;
  try {
    root = Json::parse(text, std::ref(converter));
  } catch (const Json::exception& error) {
    refuse(fmt::format("it is no JSON: {:.{}}", error.what(), kLongestReason));
  }
  Fields fields(root, "the manifest");
  if (fields.take<std::string>("format") != kFormat) refuse("it is of another format");
  const auto version = fields.take<int>("version");
  if (version != kVersion)
    refuse(fmt::format("it is of version {}, this library reads {}", version, kVersion));
  Manifest manifest;
  manifest.uuid = fields.take<std::string>("uuid");
  if (manifest.uuid.size() != 32 ||
      manifest.uuid.find_first_not_of("0123456789abcdef") != std::string::npos)
    refuse("\"uuid\" is not 32 hex digits");
  manifest.step = fields.take<std::int64_t>("step");
  const auto world = fields.take<std::uint64_t>("world");
  for (const char* list : {"optimizers", "shards"}) fields.take_list(list);
  manifest.extra = parse_extra(fields.take<Json>("extra"));
  fields.take<std::string>("checksum");
  fields.end();
  manifest.optimizers = std::move(converter.optimizers);
  manifest.shards = std::move(converter.shards);
  std::set<std::string_view> names;
  for (const OptimizerEntry& o : manifest.optimizers) {
    if (!names.insert(o.name).second) refuse(fmt::format("optimizer \"{}\" comes twice", o.name));
  }
  if (names.empty()) refuse("it holds no optimizer");
  check_shards(manifest, world);
  return manifest;
}

}  // namespace

Manifest parse_manifest(std::string_view text, const std::string& where) {
  try {
    if (text.size() > kManifestLimit) refuse("it is too long");
    return parse(text);
  } catch (const Refused& refused) {
    const std::string& reason = refused.reason;
    const bool whole = reason.size() <= kLongestReason;
    throw CorruptCheckpoint(
        fmt::format("{}: {}{}", where, reason.substr(0, kLongestReason), whole ? "" : "..."));
  }
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kManifestName;
  return parse_manifest(io::read_file(path, kManifestLimit), path.string());
}

}  // namespace ration::checkpoint

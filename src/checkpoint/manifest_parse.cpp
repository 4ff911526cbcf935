// Reading a manifest that somebody may have tampered with: everything is checked before it is
// believed, in memory that does not depend on what it claims.

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <xxhash.h>
#include <nlohmann/json.hpp>

#include <ration/error.hpp>

#include "checkpoint/base64.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/manifest_entries.hpp"
#include "io/file.hpp"

namespace ration::checkpoint {
namespace {

using namespace parsing;

constexpr std::size_t kMostDepth = 12;
constexpr std::size_t kMostPending = 20000;                 ///< values in the tree at a time
constexpr std::size_t kMostEntries = std::size_t{1} << 17;  ///< of all lists; see Converter
constexpr std::size_t kLongestString = (std::size_t{4} << 20) / 3 * 4 + 8;  ///< extra in base64
constexpr std::size_t kLongestKey = 4096;
constexpr std::size_t kLongestNumber = 64;
constexpr std::size_t kLongestReason = 500;  ///< a reason may quote what it refuses

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

#pragma once
// The parts of a manifest, from the JSON of each, which somebody may have tampered with.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/manifest.hpp"

namespace ration::checkpoint::parsing {

using Json = nlohmann::json;

/// The reason alone; parse_manifest puts the place in front.
struct Refused {
  std::string reason;
};
[[noreturn]] inline void refuse(std::string reason) {
  throw Refused{std::move(reason)};
}

/// 16 digits.
std::uint64_t parse_hex(const std::string& text, std::string_view what);

/// The fields of an object: each is taken once with its type, and nothing may be left.
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

// Each throws Refused. What is in lists inside of it was parsed before.

ParameterEntry parse_parameter(Json& json);
KindEntry parse_kind(Json& json);
FlatEntry parse_flat(Json& json, std::vector<KindEntry> kinds,
                     std::vector<ParameterEntry> parameters);
TiedEntry parse_tied(Json& json);
UnitEntry parse_unit(Json& json, std::vector<TiedEntry> tied, std::vector<FlatEntry> flats);
GroupEntry parse_group(Json& json);
OptimizerEntry parse_optimizer(Json& json, std::vector<GroupEntry> groups,
                               std::vector<UnitEntry> units);
ShardEntry parse_shard(Json& json);

}  // namespace ration::checkpoint::parsing

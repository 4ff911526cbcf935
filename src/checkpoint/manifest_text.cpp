// The manifest as JSON, a line for each parameter and file so that people can read and compare it.

#include <algorithm>

#include <fmt/format.h>
#include <xxhash.h>
#include <nlohmann/json.hpp>

#include <ration/error.hpp>

#include "checkpoint/base64.hpp"
#include "checkpoint/manifest.hpp"

namespace ration::checkpoint {
namespace {

using Json = nlohmann::json;

// Other readers keep numbers as doubles: what has 64 bits is text.
std::string hex(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

std::string quoted(const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    throw InvalidArgument(fmt::format("save: the name \"{}\" is not UTF-8", text));
  }
}

// `write(item)` for each, between commas, each on its own line.
template <class List, class Write>
std::string lines(const List& list, int indent, const Write& write) {
  if (list.empty()) return "[]";
  std::string text = "[";
  bool first = true;
  for (const auto& item : list) {
    text += fmt::format("{}\n{:{}}{}", first ? "" : ",", "", indent, write(item));
    first = false;
  }
  return text + "]";
}

std::string text_of(const ParameterEntry& p) {
  return fmt::format(
      R"({{"name": {}, "shape": {}, "offset": {}, "group": {}, "step_count": {}, "masked": {}}})",
      quoted(p.name), Json(p.shape).dump(), p.offset, p.group, p.step_count, p.masked);
}

std::string text_of(const FlatEntry& flat) {
  Json kinds = Json::array();
  for (const KindEntry& kind : flat.kinds)
    kinds.push_back({{"name", kind.name}, {"dtype", name_of(kind.dtype)}});
  return fmt::format(
      R"({{"dtype": "{}", "trainable": {}, "length": {}, "kinds": {}, "parameters": {}}})",
      name_of(flat.dtype), flat.trainable, flat.length, kinds.dump(),
      lines(flat.parameters, 8, [](const ParameterEntry& p) { return text_of(p); }));
}

std::string text_of(const UnitEntry& unit) {
  Json tied = Json::array();
  for (const TiedEntry& t : unit.tied)
    tied.push_back({{"name", t.name}, {"parameter", t.parameter}});
  return fmt::format(R"({{"name": {}, "tied": {}, "flats": {}}})", quoted(unit.name), tied.dump(),
                     lines(unit.flats, 6, [](const FlatEntry& f) { return text_of(f); }));
}

std::string text_of(const OptimizerEntry& o) {
  return fmt::format(
      R"({{"name": {}, "stage": {}, "steps": {}, "loss_scale": {}, "good_steps": {}, "groups": {}, "units": {}}})",
      quoted(o.name), o.stage, o.steps, Json(o.loss_scale).dump(), o.good_steps,
      lines(o.groups, 4,
            [](const GroupEntry& g) {
              return fmt::format(R"({{"rule": {}, "options": {}}})", quoted(g.rule),
                                 Json(g.options).dump());
            }),
      lines(o.units, 4, [](const UnitEntry& u) { return text_of(u); }));
}

std::string text_of(const Extent& extent) {
  return fmt::format(R"({{"offset": {}, "length": {}, "checksum": "{}"}})", extent.offset,
                     extent.length, hex(extent.checksum));
}

std::string text_of(const ShardEntry& shard) {
  return fmt::format(R"({{"file": {}, "size": {}, "index": {}, "checksums": {}, "rest": "{}"}})",
                     quoted(shard.file), shard.size, text_of(shard.index), text_of(shard.checksums),
                     hex(shard.rest));
}

// As text where that is UTF-8 and can be read: a zero is six characters of text, and so a few
// megabytes of them would be more than a manifest may hold.
std::string text_of_value(const std::string& value) {
  try {
    std::string text = Json(value).dump();
    if (text.size() <= std::min(kLongestText, 2 + 2 * value.size())) return text;
  } catch (const Json::exception&) {
  }
  return fmt::format(R"({{"base64": "{}"}})", to_base64(value));
}

std::string text_of(const Extra& extra) {
  std::string text = "{";
  for (const auto& [name, value] : extra)
    text +=
        fmt::format("{}\n {}: {}", text.size() > 1 ? "," : "", quoted(name), text_of_value(value));
  return text + "}";
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  std::string text = fmt::format(
      R"({{"format": "{}",
"version": {},
"uuid": "{}",
"step": {},
"world": {},
"optimizers": {},
"shards": {},
"extra": {},
)",
      kFormat, kVersion, manifest.uuid, manifest.step, manifest.shards.size(),
      lines(manifest.optimizers, 2, [](const OptimizerEntry& o) { return text_of(o); }),
      lines(manifest.shards, 2, [](const ShardEntry& s) { return text_of(s); }),
      text_of(manifest.extra));
  text += fmt::format("\"checksum\": \"{}\"}}\n", hex(XXH3_64bits(text.data(), text.size())));
  if (text.size() > kManifestLimit) {
    throw InvalidArgument(fmt::format(
        "save: the manifest would have {} bytes, at most {} are possible; use fewer parameters or "
        "less extra",
        text.size(), kManifestLimit));
  }
  // A step that nobody can load must not be saved.
  try {
    parse_manifest(text, "save: the manifest");
  } catch (const CorruptCheckpoint& error) {
    throw InvalidArgument(fmt::format("{}, and could not be loaded", error.what()));
  }
  return text;
}

}  // namespace ration::checkpoint

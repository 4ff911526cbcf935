#pragma once
// What a checkpoint holds, as manifest.json says it: every optimizer, unit, flat and parameter, and
// for each rank's file what makes it trustworthy. docs/checkpoint-format.md is the format's text.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ration/checkpoint.hpp>
#include <ration/dtype.hpp>

namespace ration::checkpoint {

inline constexpr std::string_view kFormat = "ration-checkpoint";
inline constexpr int kVersion = 1;
inline constexpr std::string_view kManifestName = "manifest.json";

struct ParameterEntry {
  std::string name = {};
  std::vector<std::int64_t> shape = {};
  std::int64_t offset = 0;  ///< of its first element in the flat
  int group = 0;            ///< index in OptimizerEntry::groups
  std::int64_t step_count = 0;
  bool masked = false;                       ///< set_trainable(false) in a flat that is trainable
  [[nodiscard]] std::int64_t count() const;  ///< elements; the shape was checked when it was read
};

/// An array that ranks keep of a flat.
struct KindEntry {
  std::string name = {};  ///< "parameter", "master", "exp_avg", ...
  DType dtype = DType::f32;
};

struct FlatEntry {
  DType dtype = DType::f32;  ///< of its parameters
  bool trainable = true;
  std::int64_t length = 0;  ///< elements, without the padding that depends on the world size
  std::vector<KindEntry> kinds = {};
  std::vector<ParameterEntry> parameters = {};  ///< by offset
};

struct TiedEntry {
  std::string name = {};
  std::string parameter = {};  ///< whose storage it shares
};

struct UnitEntry {
  std::string name = {};
  std::vector<FlatEntry> flats = {};
  std::vector<TiedEntry> tied = {};
};

/// A rule and its options, by their names in <ration/rules.hpp> (flags as 0 and 1).
struct GroupEntry {
  std::string rule = {};
  std::map<std::string, double> options = {};
};

struct OptimizerEntry {
  std::string name = {};
  int stage = 0;
  std::int64_t steps = 0;
  double loss_scale = 1;
  std::int64_t good_steps = 0;  ///< since the loss scale last changed
  std::vector<GroupEntry> groups = {};
  std::vector<UnitEntry> units = {};
};

/// A part of a file with the XXH3-64 of its bytes.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  ///< bytes
  std::uint64_t checksum = 0;
};

struct ShardEntry {
  std::string file = {};  ///< a name inside the step's folder
  std::uint64_t size = 0;
  Extent index = {};
  Extent checksums = {};
  std::uint64_t rest = 0;  ///< XXH3-64 of all bytes outside slices, index and checksums
};

struct Manifest {
  std::string uuid = {};  ///< of this save; 32 hex digits, also in every shard
  std::int64_t step = 0;
  std::vector<OptimizerEntry> optimizers = {};
  std::vector<ShardEntry> shards = {};  ///< one per rank
  Extra extra = {};
};

/// A flat's place in the numbering that indices of shards use: over all optimizers, units and flats
/// in order.
struct FlatPlace {
  int optimizer = 0;
  int unit = 0;
  int flat = 0;
};
std::vector<FlatPlace> flats_of(const Manifest& manifest);
const FlatEntry& flat_at(const Manifest& manifest, const FlatPlace& place);

/// "rank-00003-of-00008.h5"
std::string shard_name(int rank, int world);

/// The file's text, its own checksum in the last field. Throws InvalidArgument for what
/// `parse_manifest` would refuse: a step that nobody can load is not saved.
std::string to_text(const Manifest& manifest);

/// Largest manifest that is written or read, bytes.
inline constexpr std::size_t kManifestLimit = std::size_t{16} << 20;
/// Longer texts in it are base64, bytes.
inline constexpr std::size_t kLongestText = std::size_t{1} << 20;

/// Checks everything that can be checked without opening a shard: checksum, types, unknown and
/// repeated keys, names (as at registration; files without folders), counts (no overflow,
/// parameters inside their flat, in order, not overlapping), extents inside their file. Needs
/// memory of a few times the text. Throws CorruptCheckpoint "WHERE: reason".
Manifest parse_manifest(std::string_view text, const std::string& where);

/// The same from a step's folder; IoError when it cannot be read.
Manifest read_manifest(const std::filesystem::path& folder);

}  // namespace ration::checkpoint

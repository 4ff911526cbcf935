#pragma once
// Parameter -> unit -> flat -> shard: pure arithmetic that gives every element of the model one
// owner.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ration/dtype.hpp>

namespace ration {

/// A parameter with storage of its own (a tied name has none).
struct ParameterInfo {
  std::string name = {};
  std::vector<std::int64_t> shape = {};
  DType dtype = DType::f32;
  bool trainable = true;
  int group = 0;
  int unit = 0;
  std::int64_t count = 0;   ///< elements
  int flat = -1;            ///< index in Layout::flats
  std::int64_t offset = 0;  ///< of the first element in its flat, a multiple of kAlignElements
};

/// A second name for a parameter.
struct TiedName {
  std::string name = {};
  int unit = 0;
  int parameter = 0;  ///< index of the parameter that has the storage
};

/// A unit's parameters of one element type, trainable or frozen, in one buffer.
struct FlatInfo {
  int unit = 0;
  DType dtype = DType::f32;
  bool trainable = true;
  std::int64_t length =
      0;  ///< elements up to the last parameter's end; the same for every world size
  std::int64_t shard = 0;            ///< elements of each rank's part, a multiple of kAlignElements
  std::vector<int> parameters = {};  ///< in registration order
};

struct UnitInfo {
  std::string name = {};
  bool keep_whole = false;
  std::vector<int> parameters = {};  ///< with storage in this unit
  std::vector<int> flats = {};
};

struct Layout {
  int world = 1;
  std::vector<ParameterInfo> parameters;
  std::vector<TiedName> tied;
  std::vector<FlatInfo> flats;
  std::vector<UnitInfo> units;

  /// Elements of a flat with its padding at the end.
  [[nodiscard]] std::int64_t padded(const FlatInfo& flat) const { return flat.shard * world; }
  [[nodiscard]] std::int64_t elements() const;
};

/// A product of sizes. Throws InvalidArgument, naming the parameter, for a negative size or more
/// than 2^63 - 1 bytes.
std::int64_t count_elements(std::string_view name, const std::vector<std::int64_t>& shape);

/// Throws InvalidArgument for a name that is empty, or holds NUL, "..", a leading "/".
void validate_name(std::string_view what, std::string_view name);

/// Computes flats, offsets and shards from parameters and units (whose `count`, `flat`, `offset`,
/// `length`, `shard` and `flats` are overwritten).
void lay_out(Layout& layout);

/// A part of one parameter inside a range of its flat.
struct Piece {
  int parameter = 0;
  std::int64_t first = 0;       ///< of the piece in the parameter, elements
  std::int64_t flat_first = 0;  ///< of the piece in the flat
  std::int64_t count = 0;
};

/// The parameters' pieces in elements [begin, end) of a flat, in order; padding is in none.
std::vector<Piece> pieces(const Layout& layout, const FlatInfo& flat, std::int64_t begin,
                          std::int64_t end);

/// Everything that ranks must agree on, as bytes: their hash is compared, and where it differs
/// their text.
std::vector<std::byte> describe(const Layout& layout);

/// The first difference of rank `rank`'s description from rank 0's, in one line naming rank and
/// parameter.
std::string explain_difference(int rank, const std::vector<std::byte>& theirs,
                               const std::vector<std::byte>& rank0);

}  // namespace ration

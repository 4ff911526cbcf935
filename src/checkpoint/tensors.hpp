#pragma once
// The named tensors that a checkpoint amounts to, whoever saved which part of them.

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace ration::checkpoint {

struct TensorOptions {
  /// Of weights; default: as the model has them. f32 takes masters where there are any.
  std::optional<DType> dtype = std::nullopt;
  /// Also optimizer state, in its own type, as "NAME.exp_avg", and masters as "NAME.master" where
  /// they are not the weights already.
  bool states = false;
};

struct NamedTensor {
  std::string name = {};  ///< "OPTIMIZER/PARAMETER" where there are several optimizers
  std::vector<std::int64_t> shape = {};
  DType dtype = DType::f32;  ///< wanted
  int flat = 0;              ///< where its elements are
  int kind = 0;
  std::int64_t first = 0;  ///< in the flat
  std::int64_t count = 0;
  DType stored = DType::f32;
  [[nodiscard]] std::uint64_t bytes() const {
    return static_cast<std::uint64_t>(count) * size_of(dtype);
  }
};

/// A further name of a tensor.
struct TiedTensor {
  std::string name = {};
  std::string tensor = {};
};

struct TensorList {
  std::vector<NamedTensor> tensors = {};  ///< by flat, kind, first
  std::vector<TiedTensor> tied = {};
};

/// Throws InvalidArgument when two tensors would have one name.
TensorList list_tensors(const Manifest& manifest, const TensorOptions& options);

/// The tensor's place in its parameter's flat and kind that holds element `first` or the next one
/// behind it; `tensors.size()` when there is none.
std::size_t find_tensor(const std::vector<NamedTensor>& tensors, int flat, int kind,
                        std::int64_t first);

/// A kind's place in a flat, or -1.
int find_kind(const FlatEntry& flat, std::string_view name);

}  // namespace ration::checkpoint

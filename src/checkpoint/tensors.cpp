#include "checkpoint/tensors.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include <ration/error.hpp>

namespace ration::checkpoint {
namespace {

class Lister {
 public:
  Lister(const Manifest& manifest, const TensorOptions& options)
      : manifest_(manifest), options_(options) {}

  TensorList list() {
    const std::vector<FlatPlace> places = flats_of(manifest_);
    for (std::size_t f = 0; f < places.size(); ++f) {
      const OptimizerEntry& optimizer =
          manifest_.optimizers[static_cast<std::size_t>(places[f].optimizer)];
      add_flat(static_cast<int>(f), flat_at(manifest_, places[f]), prefix_of(optimizer));
    }
    for (const OptimizerEntry& optimizer : manifest_.optimizers) {
      for (const UnitEntry& unit : optimizer.units) {
        for (const TiedEntry& tied : unit.tied) {
          const std::string prefix = prefix_of(optimizer);
          take_name(prefix + tied.name);
          list_.tied.push_back({prefix + tied.name, prefix + tied.parameter});
        }
      }
    }
    std::stable_sort(
        list_.tensors.begin(), list_.tensors.end(), [](const NamedTensor& a, const NamedTensor& b) {
          return std::tuple(a.flat, a.kind, a.first) < std::tuple(b.flat, b.kind, b.first);
        });
    return std::move(list_);
  }

 private:
  [[nodiscard]] std::string prefix_of(const OptimizerEntry& optimizer) const {
    return manifest_.optimizers.size() > 1 ? optimizer.name + "/" : "";
  }

  void take_name(const std::string& name) {
    if (names_.insert(name).second) return;
    throw InvalidArgument(
        fmt::format("two tensors of the checkpoint would be called \"{}\" in one file", name));
  }

  void add_flat(int f, const FlatEntry& flat, const std::string& prefix) {
    const int master = find_kind(flat, "master");
    const int parameter = find_kind(flat, "parameter");
    const int weights = options_.dtype == DType::f32 && master >= 0 ? master : parameter;
    for (const ParameterEntry& p : flat.parameters) {
      add(f, flat, weights, p, prefix + p.name, options_.dtype);
      if (!options_.states) continue;
      for (std::size_t k = 0; k < flat.kinds.size(); ++k) {
        const int kind = static_cast<int>(k);
        if (kind == weights || kind == parameter) continue;
        add(f, flat, kind, p, fmt::format("{}{}.{}", prefix, p.name, flat.kinds[k].name), {});
      }
    }
  }

  void add(int f, const FlatEntry& flat, int kind, const ParameterEntry& p, std::string name,
           std::optional<DType> dtype) {
    take_name(name);
    const DType stored = flat.kinds[static_cast<std::size_t>(kind)].dtype;
    list_.tensors.push_back({.name = std::move(name),
                             .shape = p.shape,
                             .dtype = dtype.value_or(stored),
                             .flat = f,
                             .kind = kind,
                             .first = p.offset,
                             .count = p.count(),
                             .stored = stored});
  }

  const Manifest& manifest_;
  const TensorOptions& options_;
  TensorList list_;
  std::set<std::string> names_;
};

}  // namespace

int find_kind(const FlatEntry& flat, std::string_view name) {
  for (std::size_t k = 0; k < flat.kinds.size(); ++k) {
    if (flat.kinds[k].name == name) return static_cast<int>(k);
  }
  return -1;
}

TensorList list_tensors(const Manifest& manifest, const TensorOptions& options) {
  return Lister(manifest, options).list();
}

std::size_t find_tensor(const std::vector<NamedTensor>& tensors, int flat, int kind,
                        std::int64_t first) {
  const auto place =
      std::partition_point(tensors.begin(), tensors.end(), [&](const NamedTensor& tensor) {
        return std::tuple(tensor.flat, tensor.kind, tensor.first + tensor.count) <=
               std::tuple(flat, kind, first);
      });
  if (place == tensors.end() || place->flat != flat || place->kind != kind) return tensors.size();
  return static_cast<std::size_t>(place - tensors.begin());
}

}  // namespace ration::checkpoint

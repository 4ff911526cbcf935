#include "checkpoint/compare.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "checkpoint/state_reader.hpp"
#include "device/host/arithmetic.hpp"

namespace ration::checkpoint {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // elements, 4 MiB widened

struct Place {
  int flat = 0;
  const FlatEntry* entry = nullptr;
  const ParameterEntry* parameter = nullptr;
};
using Places = std::map<std::string, Place>;

Places places_of(const Manifest& manifest, std::size_t optimizer) {
  Places result;
  const std::vector<FlatPlace> places = flats_of(manifest);
  for (std::size_t f = 0; f < places.size(); ++f) {
    if (places[f].optimizer != static_cast<int>(optimizer)) continue;
    const FlatEntry& flat = flat_at(manifest, places[f]);
    for (const ParameterEntry& p : flat.parameters)
      result[p.name] = {static_cast<int>(f), &flat, &p};
  }
  return result;
}

/// One array of a parameter on both sides.
struct Pair {
  std::string what;
  std::string name;
  Place a, b;
  int kind_a = 0;
  int kind_b = 0;
};

class Comparer {
 public:
  Comparer(const Side& a, const Side& b, const Progress& progress)
      : a_(a), b_(b), progress_(progress) {}

  Comparison run() {
    const auto& theirs = b_.manifest.optimizers;
    std::set<std::string> met;
    for (std::size_t i = 0; i < a_.manifest.optimizers.size(); ++i) {
      const OptimizerEntry& mine = a_.manifest.optimizers[i];
      const auto other = std::find_if(theirs.begin(), theirs.end(),
                                      [&](const OptimizerEntry& o) { return o.name == mine.name; });
      if (other == theirs.end()) {
        add(mine.name, "optimizer", "only in the first");
        continue;
      }
      met.insert(mine.name);
      match(i, static_cast<std::size_t>(other - theirs.begin()));
    }
    for (const OptimizerEntry& other : theirs) {
      if (!met.contains(other.name)) add(other.name, "optimizer", "only in the second");
    }
    read();
    return std::move(result_);
  }

 private:
  void add(std::string name, std::string what, std::string text) {
    result_.differences.push_back(
        {.name = std::move(name), .what = std::move(what), .text = std::move(text)});
  }

  template <class T>
  void check(const std::string& name, const char* what, const T& a, const T& b) {
    if (a != b) add(name, what, fmt::format("{} and {}", a, b));
  }

  void match(std::size_t i, std::size_t j) {
    const OptimizerEntry& a = a_.manifest.optimizers[i];
    const OptimizerEntry& b = b_.manifest.optimizers[j];
    prefix_ = a_.manifest.optimizers.size() > 1 ? a.name + "/" : "";
    check(a.name, "steps", a.steps, b.steps);
    check(a.name, "loss scale", a.loss_scale, b.loss_scale);
    const Places mine = places_of(a_.manifest, i);
    const Places theirs = places_of(b_.manifest, j);
    for (const auto& [name, place] : mine) {
      const auto other = theirs.find(name);
      if (other == theirs.end()) {
        add(prefix_ + name, "parameter", "only in the first");
      } else if (place.parameter->shape != other->second.parameter->shape) {
        add(prefix_ + name, "shape",
            fmt::format("[{}] and [{}]", fmt::join(place.parameter->shape, ", "),
                        fmt::join(other->second.parameter->shape, ", ")));
      } else {
        ++result_.parameters;
        match(prefix_ + name, place, other->second);
      }
    }
    for (const auto& [name, place] : theirs) {
      if (!mine.contains(name)) add(prefix_ + name, "parameter", "only in the second");
    }
  }

  void match(const std::string& name, const Place& a, const Place& b) {
    check(name, "step count", a.parameter->step_count, b.parameter->step_count);
    const auto kind_of = [](const Place& place, std::string_view kind) {
      return find_kind(*place.entry, kind);
    };
    // The fp32 weights, where both sides have them.
    const auto widest = [&](const Place& place) {
      const int master = kind_of(place, "master");
      if (master >= 0) return master;
      return place.entry->dtype == DType::f32 ? kind_of(place, "parameter") : -1;
    };
    const int wide_a = widest(a);
    const int wide_b = widest(b);
    if (wide_a >= 0 && wide_b >= 0) {
      pairs_.push_back({"weights", name, a, b, wide_a, wide_b});
    } else {
      pairs_.push_back({"weights", name, a, b, kind_of(a, "parameter"), kind_of(b, "parameter")});
    }
    std::set<std::string> kinds;
    for (const Place* place : {&a, &b}) {
      for (const KindEntry& kind : place->entry->kinds) kinds.insert(kind.name);
    }
    kinds.erase("parameter");
    kinds.erase("master");
    for (const std::string& kind : kinds) {
      const int in_a = kind_of(a, kind);
      const int in_b = kind_of(b, kind);
      if (in_a >= 0 && in_b >= 0) {
        pairs_.push_back({kind, name, a, b, in_a, in_b});
      } else {
        add(name, kind, in_a >= 0 ? "only in the first" : "only in the second");
      }
    }
  }

  // In the order of the first one's arrays, so that its blocks are read once each.
  void read() {
    std::sort(pairs_.begin(), pairs_.end(), [](const Pair& x, const Pair& y) {
      return std::tuple(x.a.flat, x.kind_a, x.a.parameter->offset) <
             std::tuple(y.a.flat, y.kind_a, y.a.parameter->offset);
    });
    std::uint64_t total = 0;
    for (const Pair& pair : pairs_) total += static_cast<std::uint64_t>(pair.a.parameter->count());
    StateReader reader_a(a_.folder, a_.manifest);
    StateReader reader_b(b_.folder, b_.manifest);
    std::uint64_t done = 0;
    for (const Pair& pair : pairs_) {
      Difference difference{
          .name = pair.name, .what = pair.what, .elements = pair.a.parameter->count()};
      for (std::int64_t first = 0; first < difference.elements; first += kPiece) {
        const std::int64_t n = std::min(kPiece, difference.elements - first);
        load(reader_a, pair.a, pair.kind_a, first, n, values_a_);
        load(reader_b, pair.b, pair.kind_b, first, n, values_b_);
        count(difference, static_cast<std::size_t>(n));
        done += static_cast<std::uint64_t>(n);
        if (progress_) progress_(done, total);
      }
      ++result_.arrays;
      if (difference.count > 0) result_.differences.push_back(std::move(difference));
    }
    std::stable_sort(result_.differences.begin(), result_.differences.end(),
                     [](const Difference& x, const Difference& y) { return x.name < y.name; });
  }

  void load(StateReader& reader, const Place& place, int kind, std::int64_t first, std::int64_t n,
            std::vector<float>& to) {
    const DType dtype = place.entry->kinds[static_cast<std::size_t>(kind)].dtype;
    to.resize(static_cast<std::size_t>(n));
    const std::int64_t begin = place.parameter->offset + first;
    if (dtype == DType::f32) {
      reader.read(place.flat, kind, begin, n, reinterpret_cast<std::byte*>(to.data()));
      return;
    }
    raw_.resize(static_cast<std::size_t>(n) * size_of(dtype));
    reader.read(place.flat, kind, begin, n, raw_.data());
    arithmetic().cast(raw_.data(), dtype, to.data(), DType::f32, static_cast<std::size_t>(n));
  }

  void count(Difference& difference, std::size_t n) const {
    for (std::size_t i = 0; i < n; ++i) {
      const float a = values_a_[i];
      const float b = values_b_[i];
      if (std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b)) continue;
      ++difference.count;
      const double distance = std::fabs(static_cast<double>(a) - static_cast<double>(b));
      if (std::isnan(difference.largest)) continue;  // it says most
      if (!(distance <= difference.largest)) difference.largest = distance;
    }
  }

  const Side& a_;
  const Side& b_;
  const Progress& progress_;
  std::string prefix_;
  std::vector<Pair> pairs_;
  Comparison result_;
  std::vector<float> values_a_, values_b_;
  std::vector<std::byte> raw_;
};

}  // namespace

Comparison compare(const Side& a, const Side& b, const Progress& progress) {
  return Comparer(a, b, progress).run();
}

}  // namespace ration::checkpoint

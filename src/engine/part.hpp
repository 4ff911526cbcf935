#pragma once
// An optimizer's state as checkpoints see it: arrays by flat, pieces by parameter.

#include <utility>
#include <vector>

#include "checkpoint/part.hpp"
#include "engine/engine.hpp"

namespace ration::detail {

/// Over the state itself, which must not change meanwhile. Made anew for each save and load.
class Engine::Part final : public checkpoint::SavedPart, public checkpoint::LoadedPart {
 public:
  Part(Engine& engine, std::string name);

  [[nodiscard]] const checkpoint::OptimizerEntry& describe() const override { return entry_; }
  [[nodiscard]] std::vector<checkpoint::Slice> slices() const override;
  void read(int flat, int kind, std::int64_t first, std::int64_t count,
            std::byte* to) const override;
  [[nodiscard]] std::vector<checkpoint::WantedPiece> wanted() const override;
  void write(std::size_t piece, int state, std::int64_t first, std::int64_t count, DType type,
             const std::byte* from) override;

 private:
  [[nodiscard]] checkpoint::FlatEntry describe_flat(int flat) const;
  [[nodiscard]] const Rule& rule_of(const Visit& visit) const;

  Engine& engine_;
  checkpoint::OptimizerEntry entry_;
  std::vector<const checkpoint::FlatEntry*> flats_;  ///< by the layout's number
  std::vector<const Visit*> pieces_;
};

}  // namespace ration::detail

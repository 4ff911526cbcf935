#pragma once
// One rank's training: the model over the optimizer's units. This file is what Ration looks like in
// a trainer.

#include <optional>
#include <vector>

#include <ration/ration.hpp>

#include "batches.hpp"
#include "model.hpp"
#include "options.hpp"
#include "text.hpp"
#include "unit_tensors.hpp"

namespace chargpt {

class Trainer {
 public:
  /// Collective. `text` must outlive it. Goes on from --resume where that is given.
  Trainer(const ration::World& world, const Options& options, const Text& text);

  /// Collective. One step of all micro-steps at a learning rate; the report's one metric is the
  /// sum of the ranks' mean losses.
  ration::StepReport step(double learning_rate);

  /// Collective. Saves under the number of steps so far, with the place in the data.
  ration::SaveReport save(bool beside);

  /// Steps so far, those before a resume too.
  [[nodiscard]] int steps() const { return steps_; }
  [[nodiscard]] ration::ShardedOptimizer& optimizer() { return optimizer_; }
  [[nodiscard]] std::int64_t parameters() const { return parameters_; }

 private:
  void begin();
  void register_units();
  double micro_step(int index);

  Options options_;
  int world_;
  ration::ShardedOptimizer optimizer_;
  ration::Group decayed_, plain_;
  std::int64_t parameters_ = 0;
  int steps_ = 0;
  std::int64_t items_ = 0;  ///< sequences learnt, by all ranks

  std::vector<Layer> layers_;
  std::optional<Scratch> embedding_scratch_, scratch_;  ///< of a bf16 model
  std::optional<UnitTensors> embedding_, final_norm_;
  std::vector<UnitTensors> blocks_;

  Model<float> model_;
  Batches batches_;
};

}  // namespace chargpt

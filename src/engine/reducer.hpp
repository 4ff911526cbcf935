#pragma once
// Gradients: where the trainer writes them, when they are reduced, and what the update reads.

#include <functional>
#include <memory>
#include <vector>

#include "engine/context.hpp"
#include "engine/order.hpp"

namespace ration {

class Reducer {
 public:
  explicit Reducer(Context& context);

  /// Plans order and buckets, once the state is allocated.
  void prepare();

  /// Begins micro-step `index` of `count`; the former one must be finished.
  void begin_micro_step(int index, int count);

  /// The whole gradient of a parameter, zeroed at the first ask unless `overwrite`.
  void* gradient(int parameter, bool overwrite);
  void unit_ready(int unit);
  void parameter_ready(int parameter);

  /// Ends the micro-step: units this rank never made ready are reduced as zeros, in their turn.
  void finish_micro_step();
  /// Some parameter's gradient was said to be ready in this micro-step.
  [[nodiscard]] bool any_ready() const;
  /// Everything reduced and its norms known.
  void wait();

  /// Sum of squares of this rank's shards of the reduced gradients, in registration order.
  [[nodiscard]] double squared_norm() const;
  /// Computes it anew, after changes.
  void compute_norm_again();
  /// Stage 0, after changes: makes the reduced gradients whole again on every rank. Collective.
  void gather_again();

  /// Per parameter: asked for on this rank since `clear`.
  [[nodiscard]] const std::vector<char>& used() const { return used_; }
  /// The step is over (done, skipped or failed): accumulators start anew.
  void clear();
  [[nodiscard]] CanonicalOrder& order() { return order_; }
  [[nodiscard]] const CanonicalOrder& order() const { return order_; }

 private:
  struct Bucket {
    std::byte* memory = nullptr;
    int unit = -1;          ///< whose gradients are in it; -1: nobody's
    bool reducing = false;  ///< its reduce has been started
    std::unique_ptr<Event> done;
    std::vector<Sequence> operations;
  };
  enum class Progress : std::uint8_t { idle, filling, ready, started };
  struct UnitState {
    Progress progress = Progress::idle;
    int bucket = -1;  ///< the one it holds: from its first gradient until its reduce starts
    bool accumulated = false;  ///< since `clear`: the accumulator holds something
    bool has_trainable = false;
    bool needs_bucket = false;
  };

  [[nodiscard]] bool last() const { return index_ + 1 == count_; }
  [[nodiscard]] bool local() const {
    return several_ && accumulation_of(c_.config) == Accumulation::local;
  }
  [[nodiscard]] std::byte* gradient_flat(int flat) const;
  void acquire_bucket(int unit);
  void free_bucket(Bucket& bucket);
  [[noreturn]] void refuse_bucket(int unit);
  void make_ready(int unit);
  void fill_rest(int unit);
  void accumulate(int unit);
  void advance();
  void start(int unit);
  void reduce_flat(int flat, UnitState& unit, Bucket* bucket);
  Sequence gather_reduced(int flat);

  Context& c_;
  bool several_ = false;
  int index_ = 0;
  int count_ = 1;
  std::vector<UnitState> units_;
  std::vector<Bucket> buckets_;
  std::vector<char> asked_;  ///< per parameter: in this micro-step
  std::vector<char> ready_;
  std::vector<char> used_;
  std::vector<double> norms_;  ///< per flat
  CanonicalOrder order_;
  std::unique_ptr<Event> filled_;
};

}  // namespace ration

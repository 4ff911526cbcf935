#pragma once
// The sharded optimizer: registration, the pass through a micro-step, and the step.
//
// Threads: an optimizer and everything it hands out belong to one rank and are used from that
// rank's thread. Calls marked "collective" are made by every rank of the group in the same order.
// Handles (Group, Unit, Parameter), guards and micro-steps must not outlive the optimizer. Pointers
// to parameters hold while their guard lives, pointers to gradients until their unit is ready;
// `relayout` ends both.
//
// Errors: a wrong argument or order of calls throws InvalidArgument; whatever waits for other ranks
// may throw Timeout, RemoteError or CommunicationError, after which the job cannot go on. A broken
// optimizer (an exception destroyed a guard, or a relayout failed half way) throws Error from every
// later call.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ration/checkpoint.hpp>
#include <ration/config.hpp>
#include <ration/initialize.hpp>
#include <ration/launch.hpp>
#include <ration/memory.hpp>
#include <ration/process_group.hpp>
#include <ration/rules.hpp>

namespace ration {

namespace detail {
class Engine;
}
class ShardedOptimizer;

/// Parameters that share a rule and its options.
class Group {
 public:
  Group() = default;
  [[nodiscard]] const Rule& rule() const;
  [[nodiscard]] double learning_rate() const;
  /// Takes effect with the next update. Must be called alike on all ranks: the next step throws on
  /// all of them otherwise.
  void set_learning_rate(double learning_rate);
  /// Changes any option; the kind of rule must stay (InvalidArgument).
  void set_rule(Rule rule);

 private:
  friend class detail::Engine;
  Group(detail::Engine* engine, int index) : engine_(engine), index_(index) {}
  detail::Engine* engine_ = nullptr;
  int index_ = -1;
};

/// One named, contiguous, row-major tensor of the model.
class Parameter {
 public:
  Parameter() = default;
  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] std::span<const std::int64_t> shape() const;
  [[nodiscard]] std::int64_t count() const;  ///< elements
  [[nodiscard]] DType dtype() const;
  [[nodiscard]] bool valid() const { return engine_ != nullptr; }

 private:
  friend class detail::Engine;
  Parameter(const detail::Engine* engine, int index) : engine_(engine), index_(index) {}
  const detail::Engine* engine_ = nullptr;
  int index_ = -1;
};

/// How a parameter is registered.
struct ParameterSpec {
  std::string name = {};  ///< unique in the optimizer; not empty, no NUL, no "..", no leading "/"
  std::vector<std::int64_t> shape = {};       ///< any sizes, 0 included; empty: a scalar
  Group group = {};                           ///< default: the optimizer's first
  std::optional<DType> dtype = std::nullopt;  ///< default: Config::precision.parameter
  bool trainable = true;                      ///< false: no gradient memory, no state
  std::string tied_to = {};  ///< a parameter registered earlier whose storage, state and gradient
                             ///< this name shares
  void* data = nullptr;  ///< the trainer's own tensor, kept up to date (stages 0 to 2); outlives
                         ///< the optimizer
  void* gradient =
      nullptr;  ///< the trainer's own gradient (stages 0 and 1), of the gradient type; read
                ///< when gradients_ready or gradient_ready is said, otherwise it is zero
};

struct UnitOptions {
  /// Stage 3: keep the parameters whole between steps. For a unit used more than once a pass (a
  /// tied embedding).
  bool keep_whole = false;
  /// Stage 3 over a trainer's tensors: asked for the unit's whole memory of `bytes` (64-byte
  /// aligned) at gather, told at release. Both or neither.
  std::function<void*(std::size_t bytes)> acquire = {};
  std::function<void(void* memory)> release = {};
};

/// Guard of a unit's whole parameters; releases in its destructor. Movable. Must not outlive the
/// optimizer, nor be kept over a step: what it then shows depends on the stage. A guard that an
/// exception destroys marks the optimizer broken.
class Gathered {
 public:
  Gathered() = default;
  Gathered(Gathered&& other) noexcept;
  Gathered& operator=(Gathered&& other) noexcept;
  Gathered(const Gathered&) = delete;
  Gathered& operator=(const Gathered&) = delete;
  ~Gathered();

  /// The whole parameter, row-major, until the guard is gone. Throws InvalidArgument for a
  /// parameter of another unit or another element type.
  template <class T>
  [[nodiscard]] const T* data(const Parameter& parameter) const& {
    return static_cast<const T*>(address(parameter, dtype_of<T>::value));
  }
  template <class T>
  const T* data(const Parameter& parameter) const&& = delete;

  /// Gives the memory back early. Idempotent.
  void release();

 private:
  friend class detail::Engine;
  Gathered(detail::Engine* engine, int unit);
  [[nodiscard]] const void* address(const Parameter& parameter, DType type) const;
  detail::Engine* engine_ = nullptr;
  int unit_ = -1;
  int exceptions_ = 0;
};

/// Tag: the gradient's former contents need not be zeroed, the trainer writes every element.
struct Overwrite {};
inline constexpr Overwrite overwrite{};

/// Parameters gathered and reduced together: usually a layer.
class Unit {
 public:
  Unit() = default;
  [[nodiscard]] const std::string& name() const;
  /// Throws InvalidArgument when the unit has no such parameter.
  [[nodiscard]] Parameter operator[](std::string_view parameter) const;

  /// Makes the unit's parameters whole on this rank and returns when they are; where a stream of
  /// its own does it the next unit is prefetched. Free below stage 3. At most once a pass (a
  /// forward, a backward or an evaluation) unless the unit is `keep_whole`. Throws InvalidArgument
  /// for a second one, outside a pass, and when `Config::prefetch` + 1 guards are alive.
  [[nodiscard]] Gathered gather() const;

  /// The whole gradient of a parameter in this micro-step: zeroed at the first ask, add into it.
  /// Valid until the unit is ready. Throws InvalidArgument outside a backward, after ready, for a
  /// frozen parameter, another unit or element type.
  template <class T>
  [[nodiscard]] T* gradient(const Parameter& parameter) const {
    return static_cast<T*>(gradient_address(parameter, dtype_of<T>::value, false));
  }
  /// The same, not zeroed. Throws InvalidArgument where earlier micro-steps are accumulated in the
  /// same memory: for f32 gradients with Accumulation::local, from the second micro-step on.
  template <class T>
  [[nodiscard]] T* gradient(const Parameter& parameter, Overwrite) const {
    return static_cast<T*>(gradient_address(parameter, dtype_of<T>::value, true));
  }

  /// Last write done: the reduce starts, asynchronously, when the unit's turn has come (one order
  /// on all ranks: at first the reverse of registration). Parameters never asked for count as
  /// unused and zero; a unit that got no gradient may be said to be ready too, which spares its
  /// successors the wait. Throws InvalidArgument outside a backward, when said twice, and when no
  /// bucket is left.
  void gradients_ready() const;
  /// The same, parameter by parameter; the unit is ready with its last trainable one.
  void gradient_ready(const Parameter& parameter) const;

 private:
  friend class detail::Engine;
  Unit(detail::Engine* engine, int index) : engine_(engine), index_(index) {}
  [[nodiscard]] void* gradient_address(const Parameter& parameter, DType type,
                                       bool overwrite) const;
  detail::Engine* engine_ = nullptr;
  int index_ = -1;
};

struct MicroStepOptions {
  double weight = 1.0;  ///< items this micro-step's gradient is a sum over (1: a mean, the default)
  bool has_batch = true;  ///< false: this rank has no batch; it contributes zeros and no weight,
                          ///< and must not ask for gradients
};

/// The micro-step under way; the next `micro_step` or `step` ends it.
class MicroStep {
 public:
  /// The forward is over: gathers follow the backward's order from here, gradients may be asked
  /// for.
  void begin_backward() const;

 private:
  friend class detail::Engine;
  explicit MicroStep(detail::Engine* engine) : engine_(engine) {}
  detail::Engine* engine_ = nullptr;
};

/// A forward alone; ends with the guard. Where gathers are matched across ranks
/// (RATION_THREADS=streams) every rank must open it, though each may gather what it likes.
class Evaluation {
 public:
  Evaluation(Evaluation&& other) noexcept : engine_(other.engine_) { other.engine_ = nullptr; }
  Evaluation& operator=(Evaluation&&) = delete;
  Evaluation(const Evaluation&) = delete;
  ~Evaluation();

  /// Ends it here. Where gathers are matched across ranks this joins what other ranks gathered and
  /// this one did not; the destructor leaves that to the optimizer's next call, so say `end` before
  /// a collective of your own. Idempotent.
  void end();

 private:
  friend class detail::Engine;
  explicit Evaluation(detail::Engine* engine) : engine_(engine) {}
  detail::Engine* engine_ = nullptr;
};

/// The whole model on this rank. Read it before the next step: what it shows after that depends on
/// the stage.
class Whole {
 public:
  /// The whole parameter, row-major, until this guard is gone.
  template <class T>
  [[nodiscard]] const T* data(const Parameter& parameter) const& {
    return static_cast<const T*>(address(parameter, dtype_of<T>::value));
  }
  template <class T>
  const T* data(const Parameter& parameter) const&& = delete;
  /// The same, type unasked.
  [[nodiscard]] std::span<const std::byte> bytes(const Parameter& parameter) const;

  struct Memory;

 private:
  friend class detail::Engine;
  [[nodiscard]] const void* address(const Parameter& parameter, DType type) const;
  const detail::Engine* engine_ = nullptr;
  std::shared_ptr<Memory> memory_;
};

struct StepOptions {
  std::optional<double> clip_norm = std::nullopt;  ///< clip by the global norm
  std::vector<double> metrics = {};  ///< summed over ranks into the report; as many on every rank
};

struct StepReport {
  std::int64_t step = 0;  ///< calls of step so far, skipped ones included
  double gradient_norm =
      0;  ///< of the mean gradient, before clipping; not finite when skipped for overflow
  bool skipped =
      false;  ///< overflow on any rank, asked for, or no rank had a batch: nothing changed
  std::int64_t batches = 0;     ///< micro-steps with a batch, over all ranks; 0: the end for all
  double total_weight = 0;      ///< their weights
  double loss_scale = 1;        ///< for the next step
  bool stop_requested = false;  ///< some rank was asked to stop
  std::vector<double> metrics = {};  ///< summed over ranks
};

/// A piece of the reduced gradients on this rank: sums over ranks and micro-steps, neither divided
/// nor clipped.
struct GradientSpan {
  Parameter parameter;
  std::int64_t first_element = 0;  ///< of the piece in the parameter
  std::int64_t count = 0;
  void* data = nullptr;
  DType type = DType::f32;
};

/// What `reduce_gradients` found, alike on all ranks. Valid until `apply`.
class Gradients {
 public:
  [[nodiscard]] double norm() const { return norm_; }  ///< of the mean gradient
  [[nodiscard]] double factor() const {
    return factor_;
  }  ///< 1 / (loss scale x total weight): what turns a sum into the mean
  [[nodiscard]] bool finite() const;
  [[nodiscard]] std::int64_t batches() const { return batches_; }
  /// This rank's pieces, to inspect. Each element of the model is in one rank's pieces, at every
  /// stage.
  [[nodiscard]] std::vector<GradientSpan> spans() const;
  /// The same, to change: the norm is stale from here and computed anew by `apply`.
  [[nodiscard]] std::vector<GradientSpan> change();

 private:
  friend class detail::Engine;
  friend StepReport step(const ProcessGroup&, std::span<ShardedOptimizer* const>,
                         const StepOptions&);
  detail::Engine* engine_ = nullptr;
  double norm_ = 0;
  double factor_ = 0;
  std::int64_t batches_ = 0;
};

struct ApplyOptions {
  std::optional<double> clip_norm = std::nullopt;
  bool skip = false;  ///< on any rank: all skip
  std::vector<double> metrics = {};
};

/// Bytes this rank has sent since construction (or, for shards that peers read directly, had read).
struct TrafficReport {
  std::uint64_t sent_bytes = 0;     ///< gathers and reduces
  std::uint64_t control_bytes = 0;  ///< step headers
};

/// Shards optimizer state, gradients and parameters over a process group (see Config::stage) and
/// keeps the training what data parallelism over the group would have done.
class ShardedOptimizer {
 public:
  /// Waits for nobody; the group's ranks meet in `initialize`. Throws InvalidArgument for options
  /// that make no sense.
  ShardedOptimizer(const World& world, const Config& config);
  ShardedOptimizer(const ProcessGroup& group, const Config& config);
  ShardedOptimizer(ShardedOptimizer&&) noexcept;
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(ShardedOptimizer&&) = delete;
  ~ShardedOptimizer();

  /// Registration; alike on all ranks, groups first, units in the order in which a forward uses
  /// them (what is ready early in a backward waits for its turn). After `initialize`, new units
  /// come to life with `relayout`. Throws InvalidArgument naming the parameter for names, shapes,
  /// types or pointers that cannot be.
  Group add_group(Rule rule);
  Unit add_unit(std::string name, const std::vector<ParameterSpec>& parameters,
                UnitOptions options = {});
  /// For a trainer without layers of its own: cuts the list into units of about
  /// `elements_per_unit`, never cutting a parameter. Named "unit.0", "unit.1", ...
  std::vector<Unit> add_units(std::vector<ParameterSpec> parameters,
                              std::int64_t elements_per_unit = 16 << 20);

  /// The parameter of that name, tied names included. Throws InvalidArgument when there is none.
  [[nodiscard]] Parameter parameter(std::string_view name) const;
  [[nodiscard]] std::vector<Parameter> parameters()
      const;  ///< in registration order, tied names left out
  [[nodiscard]] std::vector<Unit> units() const;

  /// What will be allocated, from the layout alone; can be asked before `initialize`.
  [[nodiscard]] Inventory inventory() const;

  /// Collective. Compares layout and options across ranks, allocates everything, and fills the
  /// parameters. On a mismatch every rank throws InvalidArgument naming the rank and parameter that
  /// differ. Every rank throws IoError where one cannot make its swap file.
  void initialize(const Initializer& initializer);
  /// The same from the trainer's own tensors (ParameterSpec::data), those of rank 0.
  void initialize_from_data();

  /// Begins micro-step `index` of `count` (at most Config::micro_steps). Ends the former one: units
  /// this rank never used are reduced as zeros.
  MicroStep micro_step(int index = 0, int count = 1, const MicroStepOptions& options = {});

  /// Opens a forward alone. Throws InvalidArgument in the middle of a step.
  [[nodiscard]] Evaluation evaluation();

  /// Collective. Ends the step: norm, finite check, clip, update; the new parameters are gathered
  /// where the stage keeps them whole. Blocks until this rank's update is done. Throws
  /// InvalidArgument, on all ranks, when options differ between ranks: this step's gradients are
  /// then dropped and nothing else has changed. Throws CommunicationError when ranks are in
  /// different calls, and IoError where this rank's state on disk cannot be read or written: it is
  /// then to be loaded again.
  StepReport step(const StepOptions& options = {});

  /// Collective. The two halves of `step`.
  [[nodiscard]] Gradients reduce_gradients();
  StepReport apply(Gradients& gradients, const ApplyOptions& options = {});

  /// Masks (false) or unmasks a parameter: while masked it is not updated, its state is kept, and
  /// asking for its gradient throws. Alike on all ranks, between steps. For a parameter registered
  /// as frozen `true` takes effect with `relayout`, which makes its gradient memory and state.
  void set_trainable(const Parameter& parameter, bool trainable);

  /// Collective, between steps. Lays out anew: units added since, parameters frozen or unfrozen.
  /// Values and states stay; new parameters are filled by `initializer`. Pointers handed out before
  /// are invalid.
  void relayout(const Initializer& initializer = constant(0.0f));

  /// Collective, between steps. The whole model on every rank, for evaluation or export; below
  /// stage 3 no copy is made, at stage 3 memory outside the plan is allocated.
  [[nodiscard]] Whole gather_all();

  /// Collective, between steps. A whole array of one parameter on every rank, widened to fp32:
  /// "parameter", "master" (the fp32 weights; for f32 the parameter itself), or a state's name
  /// ("exp_avg", ...). Empty when the rule has no such state.
  [[nodiscard]] std::vector<float> read(const Parameter& parameter, std::string_view kind);

  /// Updates this parameter has had.
  [[nodiscard]] std::int64_t step_count(const Parameter& parameter) const;

  /// Collective, between steps. XXH3-64 over all parameters' bytes in registration order.
  [[nodiscard]] std::uint64_t digest();

  /// Collective, between steps. Saves this optimizer, alone, as "optimizer": see checkpoint::save.
  SaveReport save(const std::string& root, const SaveOptions& options = {});
  /// Waits for an asynchronous save. Its report, empty when there was none. Throws, on all ranks
  /// alike, what went wrong with it, unless a `step` has said so before.
  SaveReport wait_saved();
  /// Collective, between steps or instead of `initialize`. See checkpoint::load. Also for a broken
  /// optimizer, in the middle of a step too; its guards must be gone.
  LoadReport load(const std::string& root, const LoadOptions& options = {});

  [[nodiscard]] double loss_scale() const;    ///< what the next micro-step's loss is multiplied by
  [[nodiscard]] MemoryReport memory() const;  ///< of this rank, bytes
  [[nodiscard]] TrafficReport traffic() const;  ///< of this rank, since construction
  [[nodiscard]] const Config& config() const;

  /// The inside: for the library and for tests.
  [[nodiscard]] detail::Engine& engine() const;

 private:
  std::unique_ptr<detail::Engine> engine_;
};

/// Collective over `parent`. One step of several optimizers, each over its own group inside
/// `parent`, under one norm, one skip and one clip. Each rank passes its own optimizers; an
/// optimizer whose state exists k times inside the parent says Config::replicas = k, so that the
/// norm counts it once. All must have seen the same weights on a rank. The mean is over the
/// parent's total weight: ranks that are fed alike (replicas) share one weight between them.
StepReport step(const ProcessGroup& parent, std::span<ShardedOptimizer* const> optimizers,
                const StepOptions& options = {});
inline StepReport step(const ProcessGroup& parent,
                       std::initializer_list<ShardedOptimizer*> optimizers,
                       const StepOptions& options = {}) {
  return step(parent, std::span<ShardedOptimizer* const>(optimizers.begin(), optimizers.size()),
              options);
}

}  // namespace ration

#pragma once
// The inside of ShardedOptimizer: registration, the calls' order and checks, and the step. What
// moves parameters is the Gatherer, what moves gradients the Reducer; docs/step.md walks through a
// step.

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ration/checkpoint.hpp>
#include <ration/optimizer.hpp>

#include "engine/context.hpp"
#include "engine/gatherer.hpp"
#include "engine/header.hpp"
#include "engine/reducer.hpp"

namespace ration::checkpoint {
class ForeignFile;
class LoadPlan;
class SavedPart;
}  // namespace ration::checkpoint

namespace ration::detail {

class BackgroundSave;

class Engine {
 public:
  Engine(const ProcessGroup& group, const Config& config, std::function<bool()> stop_requested);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // registration.cpp
  Group add_group(Rule rule);
  Unit add_unit(std::string name, const std::vector<ParameterSpec>& parameters,
                UnitOptions options);
  std::vector<Unit> add_units(std::vector<ParameterSpec> parameters,
                              std::int64_t elements_per_unit);
  [[nodiscard]] Parameter find(std::string_view name) const;
  [[nodiscard]] Parameter find_in_unit(int unit, std::string_view name) const;
  [[nodiscard]] std::vector<Parameter> parameters() const;
  [[nodiscard]] std::vector<Unit> units() const;
  [[nodiscard]] const ParameterInfo& info(int parameter) const {
    return registered_.parameters[parameter];
  }
  [[nodiscard]] const UnitInfo& unit_info(int unit) const { return registered_.units[unit]; }
  [[nodiscard]] const Rule& rule(int group) const { return c_.groups[group]; }
  void set_rule(int group, Rule rule);
  void set_learning_rate(int group, double value);
  void set_trainable(const Parameter& parameter, bool trainable);
  [[nodiscard]] StatePlan plan() const;
  [[nodiscard]] Inventory inventory() const { return plan().inventory; }

  // setup.cpp
  void initialize(const Initializer& initializer);
  void initialize_from_data();
  void relayout(const Initializer& initializer);

  // passes.cpp
  MicroStep micro_step(int index, int count, const MicroStepOptions& options);
  void begin_backward();
  Evaluation evaluation();
  void end_evaluation(bool join);
  Gathered gather(int unit);
  void release(int unit, bool by_exception) noexcept(false);
  [[nodiscard]] const void* address(int unit, const Parameter& parameter, DType type) const;
  void* gradient(int unit, const Parameter& parameter, DType type, bool overwrite);
  void gradients_ready(int unit);
  void gradient_ready(int unit, const Parameter& parameter);

  // step.cpp
  StepReport step(const StepOptions& options);
  Gradients reduce_gradients();
  StepReport apply(Gradients& gradients, const ApplyOptions& options);
  [[nodiscard]] std::vector<GradientSpan> gradient_spans(bool change);
  static StepReport joint_step(const ProcessGroup& parent,
                               std::span<ShardedOptimizer* const> optimizers,
                               const StepOptions& options);

  // export.cpp
  Whole gather_all();
  [[nodiscard]] static const void* whole_address(const Whole& whole, const Parameter& parameter);
  std::vector<float> read(const Parameter& parameter, std::string_view kind);
  std::uint64_t digest();

  // checkpoint.cpp
  static SaveReport save(const std::string& root, std::span<const checkpoint::Named> optimizers,
                         const SaveOptions& options);
  SaveReport wait_saved();
  static LoadReport load(const std::string& root, std::span<const checkpoint::Named> optimizers,
                         const LoadOptions& options);

  LoadReport load_parameters(const std::string& file, const LoadOptions& options);

  [[nodiscard]] std::int64_t step_count(const Parameter& parameter) const;
  [[nodiscard]] double loss_scale() const { return loss_scale_; }
  [[nodiscard]] MemoryReport memory() const;
  [[nodiscard]] TrafficReport traffic() const;
  [[nodiscard]] const Config& config() const { return c_.config; }
  [[nodiscard]] Context& context() { return c_; }
  /// Every later call throws with this reason.
  void mark_broken(std::string reason);

 private:
  /// A piece of a parameter that this rank updates; pointers do not change until relayout.
  struct Visit {
    int parameter = 0;
    update::Run run;  ///< without master and state where these rest on disk
    StatePlace place;
  };
  class Part;
  /// What a save has written, to know it again.
  struct Saved {
    std::string root;
    std::int64_t step = 0;
    Extra extra;
    std::vector<std::tuple<std::string, std::int64_t, std::uint64_t>>
        optimizers;  ///< name, changes, options
    friend bool operator==(const Saved&, const Saved&) = default;
  };
  struct Decision {
    bool finite = true;
    bool skipped = false;
    double norm = 0;
    double mean = 0;   ///< 1 / (loss scale x total weight)
    float factor = 0;  ///< mean and clip, rounded once
  };

  void require_batch(std::string_view what, std::string_view name) const;
  void require_released(std::string_view call) const;  // no guard is alive
  void require_usable() const;                         // neither broken nor before initialize
  void require_fresh() const;                          // neither broken nor initialized
  void require_between_steps(std::string_view call) const;
  void require_laid_out(int unit) const;
  int own(const Parameter& parameter) const;  // index, checked to be this optimizer's

  void agree();
  void set_up();
  void open_tiles();
  void fill(const Initializer& initializer, const std::function<bool(int parameter)>& which);
  void start_state(const Visit& visit);
  void publish_all();
  void carry_over(const Layout& layout, State& state,
                  const std::vector<std::vector<Visit>>& visits);
  void carry_over(const ParameterInfo& before, const Visit& visit, std::string_view kind,
                  const float* values);
  void store(const Visit& visit, const float* values);
  void lay_out_anew(const Initializer& initializer);
  [[nodiscard]] std::vector<std::vector<Visit>> visits(const Layout& layout,
                                                       const State& state) const;

  void throw_failed_save(const HeaderResult& agreed);
  void require_same_ranks(const Engine& other, std::string_view call) const;
  [[nodiscard]] std::unique_ptr<checkpoint::SavedPart> copy(const Part& part) const;
  void agree_on_call(Call call);
  void prepare_to_load();
  void start_over();
  void read_foreign(const checkpoint::ForeignFile& file, Part& part) const;
  void begin_training(const std::function<bool(std::string_view parameter)>& which);
  void adopt_loaded(const checkpoint::LoadPlan& plan, std::size_t part, const LoadOptions& options);

  void close_micro_step();
  /// Filled in `buffers_`.
  HeaderRecord& record(Call call, const std::optional<double>& clip_norm);
  void hash_rules();
  [[nodiscard]] std::uint64_t options_hash() const;
  [[nodiscard]] Decision decide(const HeaderResult& agreed,
                                const std::optional<double>& clip_norm) const;
  StepReport finish(const HeaderResult& agreed, const Decision& decision);
  void update(const HeaderResult& agreed, float factor);
  void update_in_memory(const HeaderResult& agreed, float factor);
  void update_on_disk(const HeaderResult& agreed, float factor);
  void update_run(const Visit& visit, update::Run run, float factor);
  [[nodiscard]] bool is_updated(const Visit& visit, const HeaderResult& agreed) const;
  void adopt_orders(const HeaderResult& agreed);
  void back_off_or_grow(const HeaderResult& agreed, const Decision& decision);
  void end_step();

  [[nodiscard]] std::vector<float> whole_values(const Layout& layout, const State& state,
                                                const std::vector<std::vector<Visit>>& visits,
                                                int flat, std::string_view kind, const char* tag);

  Context c_;
  Layout registered_;  ///< everything added so far; Context::layout is what is laid out
  std::map<std::string, int, std::less<>> names_;  ///< tied ones included
  std::vector<char> wanted_trainable_;
  std::function<bool()> stop_requested_;
  Gatherer gatherer_{c_};
  Reducer reducer_{c_};
  std::vector<std::vector<Visit>> visits_;  ///< per flat
  std::vector<std::int64_t> step_counts_;   ///< per parameter
  HeaderBuffers buffers_;
  std::vector<std::byte> rule_bytes_;
  std::uint64_t rules_hash_ = 0;
  std::uint64_t control_bytes_ = 0;
  std::uint64_t former_bytes_ = 0;  ///< sent by communicators given up at relayout

  int exceptions_ = std::uncaught_exceptions();
  bool ready_ = false;
  std::string broken_;
  bool micro_open_ = false;
  bool backward_ = false;
  bool has_batch_ = true;
  bool warned_of_no_gradient_ = false;
  bool evaluating_ = false;
  int micro_index_ = -1;
  int micro_count_ = 1;
  double weight_ = 0;
  std::int64_t batches_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t changes_ = 0;                            ///< of values: steps, loads, relayouts
  std::optional<std::pair<Saved, std::string>> saved_;  ///< the last save, and its folder
  std::optional<Saved> being_saved_;                    ///< by `background_`
  std::shared_ptr<BackgroundSave> background_;  ///< shared by optimizers that are saved together
  double loss_scale_ = 1;
  std::int64_t good_steps_ = 0;
  bool reduced_ = false;  ///< between reduce_gradients and apply
  bool changed_ = false;
  HeaderResult agreed_;  ///< of reduce_gradients
};

}  // namespace ration::detail

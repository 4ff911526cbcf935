// The public handles: thin, they pass every call on to the Engine.

#include <ration/optimizer.hpp>

#include <cmath>
#include <exception>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "engine/engine.hpp"

namespace ration {
namespace {

template <class Engine>
Engine& checked(Engine* engine, const char* what) {
  if (!engine)
    throw InvalidArgument(fmt::format("the {} is empty; take it from the optimizer", what));
  return *engine;
}

}  // namespace

const Rule& Group::rule() const {
  return checked(engine_, "group").rule(index_);
}
double Group::learning_rate() const {
  return update::learning_rate(rule());
}
void Group::set_learning_rate(double learning_rate) {
  checked(engine_, "group").set_learning_rate(index_, learning_rate);
}
void Group::set_rule(Rule rule) {
  checked(engine_, "group").set_rule(index_, std::move(rule));
}

const std::string& Parameter::name() const {
  return checked(engine_, "parameter").info(index_).name;
}
std::span<const std::int64_t> Parameter::shape() const {
  return checked(engine_, "parameter").info(index_).shape;
}
std::int64_t Parameter::count() const {
  return checked(engine_, "parameter").info(index_).count;
}
DType Parameter::dtype() const {
  return checked(engine_, "parameter").info(index_).dtype;
}

const std::string& Unit::name() const {
  return checked(engine_, "unit").unit_info(index_).name;
}
Parameter Unit::operator[](std::string_view parameter) const {
  return checked(engine_, "unit").find_in_unit(index_, parameter);
}
Gathered Unit::gather() const {
  return checked(engine_, "unit").gather(index_);
}
void Unit::gradients_ready() const {
  checked(engine_, "unit").gradients_ready(index_);
}
void Unit::gradient_ready(const Parameter& parameter) const {
  checked(engine_, "unit").gradient_ready(index_, parameter);
}
void* Unit::gradient_address(const Parameter& parameter, DType type, bool overwrite) const {
  return checked(engine_, "unit").gradient(index_, parameter, type, overwrite);
}

Gathered::Gathered(detail::Engine* engine, int unit)
    : engine_(engine), unit_(unit), exceptions_(std::uncaught_exceptions()) {}
Gathered::Gathered(Gathered&& other) noexcept
    : engine_(std::exchange(other.engine_, nullptr)),
      unit_(other.unit_),
      exceptions_(other.exceptions_) {}
Gathered& Gathered::operator=(Gathered&& other) noexcept {
  if (this != &other) {
    if (engine_) std::exchange(engine_, nullptr)->release(unit_, false);
    engine_ = std::exchange(other.engine_, nullptr);
    unit_ = other.unit_;
    exceptions_ = other.exceptions_;
  }
  return *this;
}
Gathered::~Gathered() {
  if (!engine_) return;
  try {
    engine_->release(unit_, std::uncaught_exceptions() > exceptions_);
  } catch (const std::exception& error) {
    engine_->mark_broken(error.what());
  }
}
const void* Gathered::address(const Parameter& parameter, DType type) const {
  if (!engine_) throw InvalidArgument("data asked for from a guard that was released");
  return engine_->address(unit_, parameter, type);
}
void Gathered::release() {
  if (engine_) std::exchange(engine_, nullptr)->release(unit_, false);
}

void MicroStep::begin_backward() const {
  engine_->begin_backward();
}

Evaluation::~Evaluation() {
  if (engine_) engine_->end_evaluation(false);
}
void Evaluation::end() {
  if (engine_) std::exchange(engine_, nullptr)->end_evaluation(true);
}

const void* Whole::address(const Parameter& parameter, DType type) const {
  if (parameter.dtype() != type) {
    throw InvalidArgument(fmt::format("parameter \"{}\": data asked for as {}, it is {}",
                                      parameter.name(), name_of(type), name_of(parameter.dtype())));
  }
  return bytes(parameter).data();
}
std::span<const std::byte> Whole::bytes(const Parameter& parameter) const {
  const auto size = static_cast<std::size_t>(parameter.count()) * size_of(parameter.dtype());
  return {static_cast<const std::byte*>(detail::Engine::whole_address(*this, parameter)), size};
}

bool Gradients::finite() const {
  return std::isfinite(norm_);
}
std::vector<GradientSpan> Gradients::spans() const {
  return checked(engine_, "gradients").gradient_spans(false);
}
std::vector<GradientSpan> Gradients::change() {
  return checked(engine_, "gradients").gradient_spans(true);
}

ShardedOptimizer::ShardedOptimizer(const World& world, const Config& config)
    : engine_(std::make_unique<detail::Engine>(world, config,
                                               [world] { return world.stop_requested(); })) {}
ShardedOptimizer::ShardedOptimizer(const ProcessGroup& group, const Config& config)
    : engine_(std::make_unique<detail::Engine>(group, config, std::function<bool()>())) {}
ShardedOptimizer::ShardedOptimizer(ShardedOptimizer&&) noexcept = default;
ShardedOptimizer::~ShardedOptimizer() = default;

detail::Engine& ShardedOptimizer::engine() const {
  if (!engine_) throw InvalidArgument("the optimizer was moved from");
  return *engine_;
}

Group ShardedOptimizer::add_group(Rule rule) {
  return engine().add_group(std::move(rule));
}
Unit ShardedOptimizer::add_unit(std::string name, const std::vector<ParameterSpec>& parameters,
                                UnitOptions options) {
  return engine().add_unit(std::move(name), parameters, std::move(options));
}
std::vector<Unit> ShardedOptimizer::add_units(std::vector<ParameterSpec> parameters,
                                              std::int64_t elements_per_unit) {
  return engine().add_units(std::move(parameters), elements_per_unit);
}
Parameter ShardedOptimizer::parameter(std::string_view name) const {
  return engine().find(name);
}
std::vector<Parameter> ShardedOptimizer::parameters() const {
  return engine().parameters();
}
std::vector<Unit> ShardedOptimizer::units() const {
  return engine().units();
}
Inventory ShardedOptimizer::inventory() const {
  return engine().inventory();
}
void ShardedOptimizer::initialize(const Initializer& initializer) {
  engine().initialize(initializer);
}
void ShardedOptimizer::initialize_from_data() {
  engine().initialize_from_data();
}
MicroStep ShardedOptimizer::micro_step(int index, int count, const MicroStepOptions& options) {
  return engine().micro_step(index, count, options);
}
Evaluation ShardedOptimizer::evaluation() {
  return engine().evaluation();
}
StepReport ShardedOptimizer::step(const StepOptions& options) {
  return engine().step(options);
}
Gradients ShardedOptimizer::reduce_gradients() {
  return engine().reduce_gradients();
}
StepReport ShardedOptimizer::apply(Gradients& gradients, const ApplyOptions& options) {
  return engine().apply(gradients, options);
}
void ShardedOptimizer::set_trainable(const Parameter& parameter, bool trainable) {
  engine().set_trainable(parameter, trainable);
}
void ShardedOptimizer::relayout(const Initializer& initializer) {
  engine().relayout(initializer);
}
Whole ShardedOptimizer::gather_all() {
  return engine().gather_all();
}
std::vector<float> ShardedOptimizer::read(const Parameter& parameter, std::string_view kind) {
  return engine().read(parameter, kind);
}
std::int64_t ShardedOptimizer::step_count(const Parameter& parameter) const {
  return engine().step_count(parameter);
}
std::uint64_t ShardedOptimizer::digest() {
  return engine().digest();
}
SaveReport ShardedOptimizer::save(const std::string& root, const SaveOptions& options) {
  const checkpoint::Named named{.name = "optimizer", .optimizer = this};
  return checkpoint::save(root, {&named, 1}, options);
}
SaveReport ShardedOptimizer::wait_saved() {
  return engine().wait_saved();
}
LoadReport ShardedOptimizer::load(const std::string& root, const LoadOptions& options) {
  const checkpoint::Named named{.name = "optimizer", .optimizer = this};
  return checkpoint::load(root, {&named, 1}, options);
}
double ShardedOptimizer::loss_scale() const {
  return engine().loss_scale();
}
MemoryReport ShardedOptimizer::memory() const {
  return engine().memory();
}
TrafficReport ShardedOptimizer::traffic() const {
  return engine().traffic();
}
const Config& ShardedOptimizer::config() const {
  return engine().config();
}

}  // namespace ration

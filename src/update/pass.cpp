#include "update/pass.hpp"

#include <algorithm>
#include <string>

#include <ration/error.hpp>

#include "update/random_bits.hpp"
#include "update/scalars.hpp"

namespace ration::update {
namespace {

// Measured: scratch and the arrays it is read from share the L1 cache best at 256 elements (512 and
// 1,024 take 1.1 and 1.3 times as long where everything is kept in 16 bits).
constexpr std::size_t kBlock = 256;

const void* at(const void* array, DType type, std::size_t element) {
  return static_cast<const std::byte*>(array) + element * size_of(type);
}
void* at(void* array, DType type, std::size_t element) {
  return static_cast<std::byte*>(array) + element * size_of(type);
}
template <class T>
T* at(void* array, std::size_t element) {
  return static_cast<T*>(array) + element;
}

// The fp32 arrays of one block: the run's own where they are fp32, scratch otherwise.
struct Block {
  float* weights = nullptr;
  const float* gradients = nullptr;
  std::array<float*, kMaxStates> state{};
  std::size_t first = 0;  ///< in the run
  std::size_t count = 0;
};

enum class Gradients : std::uint8_t {
  as_they_are,  // the rule multiplies by the factor
  scaled
};

class Pass {
 public:
  Pass(const Level& level, const Run& run, std::size_t states, Gradients gradients)
      : level_(level), run_(run), states_(states), gradients_(gradients) {}

  template <class Function>
  void for_each_block(const Function& function) {
    const bool in_place = gradients_ == Gradients::as_they_are &&
                          run_.gradient_type == DType::f32 && run_.weight_kind == WeightKind::own &&
                          (states_ == 0 || run_.state_type == DType::f32);
    const std::size_t length = in_place ? run_.count : kBlock;
    for (std::size_t first = 0; first < run_.count; first += length) {
      const Block block = load(first, std::min(length, run_.count - first));
      function(block);
      store(block);
    }
  }

 private:
  Block load(std::size_t first, std::size_t count) {
    Block block;
    block.first = first;
    block.count = count;
    block.gradients = load_gradients(first, count);
    switch (run_.weight_kind) {
      case WeightKind::own:
        block.weights = at<float>(run_.weight, first);
        break;
      case WeightKind::fp32:
        block.weights = at<float>(run_.master, first);
        break;
      case WeightKind::split:
        load_weights(level_, run_, first, count, weight_scratch_);
        block.weights = weight_scratch_;
        break;
    }
    for (std::size_t s = 0; s < states_; ++s) {
      if (run_.state_type == DType::f32) {
        block.state[s] = at<float>(run_.state[s], first);
      } else {
        level_.arithmetic.cast(at(run_.state[s], run_.state_type, first), run_.state_type,
                               state_scratch_[s], DType::f32, count);
        block.state[s] = state_scratch_[s];
      }
    }
    return block;
  }

  const float* load_gradients(std::size_t first, std::size_t count) {
    const void* gradients = at(run_.gradient, run_.gradient_type, first);
    const float* widened = static_cast<const float*>(gradients);
    if (run_.gradient_type != DType::f32) {
      level_.arithmetic.cast(gradients, run_.gradient_type, gradient_scratch_, DType::f32, count);
      widened = gradient_scratch_;
    }
    if (gradients_ == Gradients::as_they_are) return widened;
    level_.kernels.scale(widened, run_.factor, gradient_scratch_, count);
    return gradient_scratch_;
  }

  void store(const Block& block) {
    store_weights(level_, run_, block.first, block.count, block.weights);
    if (run_.state_type == DType::f32) return;
    for (std::size_t s = 0; s < states_; s += 2) {  // one hash rounds two states
      const bool two = s + 1 < states_;
      const RandomBits random = {.seed = random_seed(run_.key, run_.step, s / 2),
                                 .first_element = run_.first_element + block.first};
      level_.kernels.round_randomly(
          random, block.state[s], at<std::uint16_t>(run_.state[s], block.first),
          two ? block.state[s + 1] : nullptr,
          two ? at<std::uint16_t>(run_.state[s + 1], block.first) : nullptr, block.count);
    }
  }

  const Level& level_;
  const Run& run_;
  std::size_t states_;
  Gradients gradients_;
  alignas(64) float gradient_scratch_[kBlock];
  alignas(64) float weight_scratch_[kBlock];
  alignas(64) float state_scratch_[kMaxStates][kBlock];
};

// Gives each kind of rule to its kernel.
struct Visitor {
  const Level& level;
  const Run& run;

  void operator()(const AdamW& rule) const {
    const AdamScalars s = scalars(rule, run.factor, run.step);
    Pass(level, run, 2, Gradients::as_they_are).for_each_block([&](const Block& b) {
      level.kernels.adamw(s, b.weights, b.gradients, b.state[0], b.state[1], b.count);
    });
  }

  void operator()(const Adam& rule) const {
    const AdamScalars s = scalars(rule, run.factor, run.step);
    Pass(level, run, 2, Gradients::as_they_are).for_each_block([&](const Block& b) {
      level.kernels.adam(s, b.weights, b.gradients, b.state[0], b.state[1], b.count);
    });
  }

  void operator()(const SGD& rule) const {
    const SgdScalars s = scalars(rule, run.factor, run.step);
    if (rule.momentum == 0.0) {
      Pass(level, run, 0, Gradients::as_they_are).for_each_block([&](const Block& b) {
        level.kernels.sgd(s, b.weights, b.gradients, b.count);
      });
      return;
    }
    const auto kernel = rule.nesterov ? level.kernels.nesterov : level.kernels.momentum;
    Pass(level, run, 1, Gradients::as_they_are).for_each_block([&](const Block& b) {
      kernel(s, b.weights, b.gradients, b.state[0], b.count);
    });
  }

  void operator()(const Adagrad& rule) const {
    const AdagradScalars s = scalars(rule, run.factor, run.step);
    Pass(level, run, 1, Gradients::as_they_are).for_each_block([&](const Block& b) {
      level.kernels.adagrad(s, b.weights, b.gradients, b.state[0], b.count);
    });
  }

  void operator()(const Lion& rule) const {
    const LionScalars s = scalars(rule, run.factor, run.step);
    Pass(level, run, 1, Gradients::as_they_are).for_each_block([&](const Block& b) {
      level.kernels.lion(s, b.weights, b.gradients, b.state[0], b.count);
    });
  }

  void operator()(const CustomRule& rule) const {
    Pass(level, run, rule.state.size(), Gradients::scaled).for_each_block([&](const Block& b) {
      std::array<std::span<float>, kMaxStates> state;
      for (std::size_t s = 0; s < rule.state.size(); ++s) state[s] = {b.state[s], b.count};
      rule.update(RuleRun{.weights = {b.weights, b.count},
                          .gradients = {b.gradients, b.count},
                          .state = std::span(state).first(rule.state.size()),
                          .learning_rate = rule.learning_rate,
                          .step = run.step,
                          .first_element = run.first_element + b.first});
    });
  }
};

[[noreturn]] void refuse(const std::string& text) {
  throw InvalidArgument("update: " + text);
}

}  // namespace

void check(const Run& run) {
  if (!is_parameter_type(run.gradient_type)) {
    refuse("gradients are " + std::string(name_of(run.gradient_type)) +
           "; they may be f32, bf16 or f16");
  }
  if (!is_parameter_type(run.weight_type)) {
    refuse("weights are " + std::string(name_of(run.weight_type)) +
           "; they may be f32, bf16 or f16");
  }
  if (run.weight_kind == WeightKind::own && run.weight_type != DType::f32) {
    refuse(std::string(name_of(run.weight_type)) + " weights need a master");
  }
  if (run.weight_kind == WeightKind::split && run.weight_type != DType::bf16) {
    refuse("a split master needs bf16 weights; these are " + std::string(name_of(run.weight_type)));
  }
  if (run.state_type != DType::f32 && run.state_type != DType::bf16) {
    refuse("moments are " + std::string(name_of(run.state_type)) + "; they may be f32 or bf16");
  }
  if (run.step < 1) refuse("step is " + std::to_string(run.step) + "; the first is 1");
}

void pass(const Level& level, const Rule& rule, const Run& run) {
  std::visit(Visitor{level, run}, rule);
}

void load_weights(const Level& level, const Run& run, std::size_t first, std::size_t count,
                  float* to) {
  switch (run.weight_kind) {
    case WeightKind::own:
      return level.arithmetic.cast(at<float>(run.weight, first), DType::f32, to, DType::f32, count);
    case WeightKind::fp32:
      return level.arithmetic.cast(at<float>(run.master, first), DType::f32, to, DType::f32, count);
    case WeightKind::split:
      return level.kernels.join(at<std::uint16_t>(run.weight, first),
                                at<std::uint16_t>(run.master, first), to, count);
  }
}

void store_weights(const Level& level, const Run& run, std::size_t first, std::size_t count,
                   const float* from) {
  if (run.weight_kind == WeightKind::split) {
    return level.kernels.split(from, at<std::uint16_t>(run.weight, first),
                               at<std::uint16_t>(run.master, first), count);
  }
  const bool own = run.weight_kind == WeightKind::own;
  level.arithmetic.cast(from, DType::f32, at<float>(own ? run.weight : run.master, first),
                        DType::f32, count);
  if (own) return;
  if (run.weight_type == DType::bf16) {
    level.kernels.round_half_up(from, at<std::uint16_t>(run.weight, first), count);
  } else {
    level.arithmetic.cast(from, DType::f32, at(run.weight, run.weight_type, first), run.weight_type,
                          count);
  }
}

}  // namespace ration::update

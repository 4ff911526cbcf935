#pragma once
// Update rules: plain option structs, every option with a default, and the rule a user registers.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace ration {

/// Stochastic gradient descent (momentum, Nesterov) as torch.optim.SGD: decay is added to the
/// gradient. State: "momentum_buffer" when momentum is not 0.
struct SGD {
  double learning_rate = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;
};

/// Adam (Kingma and Ba 2015, algorithm 1), as torch.optim.Adam: decay is added to the gradient.
/// State: "exp_avg", "exp_avg_sq".
struct Adam {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
};

/// AdamW (Loshchilov and Hutter 2019, algorithm 2), as torch.optim.AdamW: decay shrinks the weight
/// first. State: "exp_avg", "exp_avg_sq".
struct AdamW {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
};

/// Adagrad (Duchi et al. 2011, section 1.1, diagonal), as torch.optim.Adagrad. State: "sum".
struct Adagrad {
  double learning_rate = 1e-2;
  double learning_rate_decay = 0.0;
  double epsilon = 1e-10;
  double weight_decay = 0.0;
  double initial_accumulator = 0.0;
};

/// Lion (Chen et al. 2023, algorithm 2): the sign of an interpolated momentum. State: "exp_avg".
struct Lion {
  double learning_rate = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0.0;
};

/// What a registered rule sees: a piece of one parameter, all in fp32. The gradients are already
/// divided, clipped and unscaled. Pieces have any length; a rule must not depend on where a piece
/// begins.
struct RuleRun {
  std::span<float> weights = {};          ///< read and written
  std::span<const float> gradients = {};  ///< as many
  std::span<const std::span<float>> state =
      {};                    ///< one span of as many elements for each name in CustomRule::state
  double learning_rate = 0;  ///< the group's, now
  std::int64_t step = 0;     ///< the parameter's own count of updates, this one included: 1, 2, ...
  std::uint64_t first_element =
      0;  ///< index in the parameter of the first element, for counter-based random bits
};

/// A rule of the user's own, element by element. `update` is called on every rank, from the rank's
/// own thread, over disjoint pieces; it must not throw and must be the same on every rank (`name`
/// is what ranks compare).
struct CustomRule {
  std::string name = {};
  std::vector<std::string> state =
      {};  ///< names of its state arrays, each starting at 0; at most 4
  double learning_rate = 1e-3;
  std::function<void(const RuleRun&)> update = {};
};

using Rule = std::variant<AdamW, Adam, SGD, Adagrad, Lion, CustomRule>;

}  // namespace ration

#pragma once
// Update rules at work: one pass over a piece of one parameter does unscale, clip, update and cast
// to the model's type.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <ration/dtype.hpp>
#include <ration/rules.hpp>

namespace ration::update {

inline constexpr std::size_t kMaxStates = 4;

/// Names of the state arrays a rule needs, in the order in which runs hand them over.
std::vector<std::string> state_names(const Rule& rule);

double learning_rate(const Rule& rule);
void set_learning_rate(Rule& rule, double value);

/// "AdamW": for messages and checkpoints. A CustomRule's own name.
std::string name_of(const Rule& rule);

/// Throws InvalidArgument naming the option that makes no sense (negative rates, betas outside [0,
/// 1), ...).
void validate(const Rule& rule);

/// Appends every option's bytes: ranks compare a hash of them.
void append_options(const Rule& rule, std::vector<std::byte>& bytes);

/// Every option by its name (flags as 0 and 1), and back: names that the rule does not have are
/// passed over. Throws InvalidArgument for values that make no sense; the rule is then as it was.
std::map<std::string, double> options(const Rule& rule);
void set_options(Rule& rule, const std::map<std::string, double>& values);

/// What state arrays start from: 0 but for Adagrad's accumulator.
float initial_state(const Rule& rule, std::size_t state);

/// How a run's fp32 weights are kept.
enum class WeightKind : std::uint8_t {
  own,   ///< the model's weight is fp32 and is the master
  fp32,  ///< `master` is fp32; `weight` is its cast (bf16: rounded half up; f16: to nearest even)
  split  ///< `weight` is bf16, `master` its 16-bit residue: together the fp32 value, exactly (see
         ///< docs/numerics.md)
};

/// A piece of one parameter with its state. Arrays are `count` long and may begin at any element.
struct Run {
  std::size_t count = 0;
  const void* gradient = nullptr;  ///< f32, bf16 or f16: sums
  DType gradient_type = DType::f32;
  float factor = 1.0f;  ///< every gradient is multiplied by it first, in fp32
  void* weight = nullptr;
  DType weight_type = DType::f32;
  WeightKind weight_kind = WeightKind::own;
  void* master = nullptr;  ///< float (fp32) or uint16_t (split); unused for own
  std::array<void*, kMaxStates> state{};
  DType state_type = DType::f32;    ///< f32, or bf16 with stochastic rounding
  std::uint64_t key = 0;            ///< of the parameter, for counter-based random bits
  std::uint64_t first_element = 0;  ///< index in the parameter of the first element
  std::int64_t step = 1;            ///< the parameter's own count of updates, this one included
};

/// The run over elements [first, first + count) of `run`.
Run part(const Run& run, std::size_t first, std::size_t count);

/// Applies the rule. The same bits for every cut of a parameter into runs, on every CPU; the
/// floating-point control register is set to round to nearest without flushing denormals, and
/// restored.
void apply(const Rule& rule, const Run& run);

/// The levels of instruction sets built in and supported here, best last; `apply` uses the last.
/// Tests walk them.
std::span<const char* const> levels();
void apply_at(std::size_t level, const Rule& rule, const Run& run);

/// The fp32 weights of a run, whatever their kind: to save, print and compare.
void load_weights(const Run& run, float* to);
/// Sets weight and master from fp32 values.
void store_weights(const Run& run, const float* from);

}  // namespace ration::update

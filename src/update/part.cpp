#include "update/update.hpp"

namespace ration::update {

Run part(const Run& run, std::size_t first, std::size_t count) {
  const auto advance = [first](auto* array, std::size_t element) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(array)>>,
                                    const std::byte, std::byte>;
    return array ? static_cast<Byte*>(array) + first * element : nullptr;
  };
  Run result = run;
  result.count = count;
  result.gradient = advance(run.gradient, size_of(run.gradient_type));
  result.weight = advance(run.weight, size_of(run.weight_type));
  result.master = advance(
      run.master, run.weight_kind == WeightKind::split ? sizeof(std::uint16_t) : sizeof(float));
  for (std::size_t k = 0; k < kMaxStates; ++k)
    result.state[k] = advance(run.state[k], size_of(run.state_type));
  result.first_element = run.first_element + first;
  return result;
}

}  // namespace ration::update

#include "device/host/instruction_set.hpp"

#include <cstdlib>
#include <string>
#include <string_view>

#include <ration/error.hpp>

#ifdef RATION_X86_LEVELS
#include <cpuid.h>
#endif

namespace ration {
namespace {

#ifdef RATION_X86_LEVELS
// -march=x86-64-v3 lets the compiler use these too, and not every compiler's
// __builtin_cpu_supports knows their names.
bool has_f16c_movbe_lzcnt() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
  const bool f16c = (ecx & (1u << 29)) != 0;
  const bool movbe = (ecx & (1u << 22)) != 0;
  if (__get_cpuid(0x80000001u, &eax, &ebx, &ecx, &edx) == 0) return false;
  const bool lzcnt = (ecx & (1u << 5)) != 0;
  return f16c && movbe && lzcnt;
}

std::size_t supported_levels() {
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                  has_f16c_movbe_lzcnt();
  if (!v3) return 1;
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  return v4 ? 3 : 2;
}
#else
std::size_t supported_levels() {
  return 1;
}
#endif

std::size_t allowed_levels() {
  const char* value = std::getenv("RATION_ISA");
  if (value == nullptr || *value == '\0') return 3;
  const std::string_view name = value;
  if (name == "baseline") return 1;
  if (name == "x86-64-v3") return 2;
  if (name == "x86-64-v4") return 3;
  throw InvalidArgument("RATION_ISA is \"" + std::string(name) +
                        "\"; it may be baseline, x86-64-v3 or x86-64-v4");
}

}  // namespace

std::size_t instruction_set_levels() {
  static const std::size_t levels = [] {
    const std::size_t supported = supported_levels();
    const std::size_t allowed = allowed_levels();
    return allowed < supported ? allowed : supported;
  }();
  return levels;
}

}  // namespace ration

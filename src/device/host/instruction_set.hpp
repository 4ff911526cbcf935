#pragma once
// Which of the instruction sets that kernels are compiled for this CPU can run.

#include <cstddef>

namespace ration {

inline constexpr const char* kInstructionSetNames[] = {"baseline", "x86-64-v3", "x86-64-v4"};

/// How many levels of instruction sets kernels may use here: 1 the baseline alone, 2 with
/// x86-64-v3 (AVX2), 3 with x86-64-v4 (AVX-512). The environment variable RATION_ISA (baseline,
/// x86-64-v3, x86-64-v4) lowers it, to find a fault or to compare speeds; the bits are the same.
/// Throws InvalidArgument when RATION_ISA names no level. Asked once, then remembered.
std::size_t instruction_set_levels();

}  // namespace ration

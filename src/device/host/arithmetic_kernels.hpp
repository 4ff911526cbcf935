#pragma once
// The tables of arithmetic.kernel.cpp, one per instruction set. They run under whatever the
// floating-point control register says: for code that has set it already (FloatControl).

#include "device/host/arithmetic.hpp"

namespace ration {

namespace baseline {
extern const Arithmetic kArithmetic;
}
#ifdef RATION_X86_LEVELS
namespace x86_64_v3 {
extern const Arithmetic kArithmetic;
}
namespace x86_64_v4 {
extern const Arithmetic kArithmetic;
}
#endif

}  // namespace ration

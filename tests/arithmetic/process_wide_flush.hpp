#pragma once
// What linking a program with -Ofast does to its threads.

#include <bit>
#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace ration::testing {

#if defined(__SSE__)
/// Denormals are flushed to zero, and rounding is upwards for good measure, for the life of the
/// object.
class ProcessWideFlush {
 public:
  ProcessWideFlush() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040u | 0x4000u); }
  ~ProcessWideFlush() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
};
#else
/// Does nothing on this CPU.
class ProcessWideFlush {
 public:
  ProcessWideFlush() {}
  ~ProcessWideFlush() {}
};
#endif

/// Whether the caller's own arithmetic flushes denormals now.
inline bool flushes() {
  volatile float tiny = 1e-40f;
  const volatile float doubled = tiny * 2.0f;
  return std::bit_cast<std::uint32_t>(float{doubled}) == 0;
}

}  // namespace ration::testing

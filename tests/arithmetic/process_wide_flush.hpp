#pragma once
// What linking a program with -Ofast does to its threads.

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace ration::testing {

/// Denormals are flushed to zero, and rounding is upwards for good measure, for the life of the
/// object.
class ProcessWideFlush {
 public:
#if defined(__SSE__)
  ProcessWideFlush() : saved_(_mm_getcsr()) {
    _mm_setcsr(saved_ | 0x8040u | 0x4000u);
  }
  ~ProcessWideFlush() {
    _mm_setcsr(saved_);
  }

 private:
  unsigned saved_;
#endif
};

}  // namespace ration::testing

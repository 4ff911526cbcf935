#pragma once
// The floating-point control register, set to what our arithmetic promises, for the life of an
// object. A program linked with -Ofast flushes denormals to zero in the whole process; libraries
// change the rounding mode and forget it; debuggers unmask exceptions. Bits must not depend on it.

#include <cstdint>

namespace ration {

/// Round to nearest even, denormals kept, exceptions masked; the destructor restores what was
/// there. Of the calling thread alone. On CPUs that are neither x86 nor AArch64 it does nothing.
class FloatControl {
 public:
  FloatControl() : saved_(get()) { set(kWanted); }
  ~FloatControl() { set(saved_); }
  FloatControl(const FloatControl&) = delete;
  FloatControl& operator=(const FloatControl&) = delete;

 private:
#if defined(__SSE__)
  using Word = std::uint32_t;
  static constexpr Word kWanted = 0x1f80;  // MXCSR after reset
  static Word get() {
    return __builtin_ia32_stmxcsr();
  }
  static void set(Word word) {
    __builtin_ia32_ldmxcsr(word);
  }
#elif defined(__aarch64__)
  using Word = std::uint64_t;
  static constexpr Word kWanted = 0;  // FPCR after reset
  static Word get() {
    Word word = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void set(Word word) {
    __asm__ volatile("msr fpcr, %0" : : "r"(word));
  }
#else
  using Word = std::uint32_t;
  static constexpr Word kWanted = 0;
  static Word get() {
    return 0;
  }
  static void set(Word) {}
#endif
  Word saved_;
};

}  // namespace ration

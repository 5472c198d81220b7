// Computes with subnormal numbers, whatever mode the thread is in.
#ifndef OPS_BASE_GRADUAL_UNDERFLOW_H_
#define OPS_BASE_GRADUAL_UNDERFLOW_H_

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tf_strategies {

// While this object exists, its thread computes with subnormal numbers. TensorFlow's threads treat them as
// zero and other threads do not, so ranks could get different results.
class GradualUnderflow {
 public:
  GradualUnderflow() : mode_(Read()) { Write(mode_ & ~kFlush); }
  ~GradualUnderflow() { Write((Read() & ~kFlush) | (mode_ & kFlush)); }
  GradualUnderflow(const GradualUnderflow&) = delete;
  GradualUnderflow& operator=(const GradualUnderflow&) = delete;

 private:
#if defined(__x86_64__)
  using Mode = uint32_t;
  static constexpr Mode kFlush = 0x8040;  // of results, of inputs
  static Mode Read() { return _mm_getcsr(); }
  static void Write(Mode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
  using Mode = uint64_t;
  static constexpr Mode kFlush = Mode{1} << 24;
  static Mode Read() {
    Mode mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void Write(Mode mode) { asm volatile("msr fpcr, %0" ::"r"(mode)); }
#endif

  const Mode mode_;
};

}  // namespace tf_strategies

#endif  // OPS_BASE_GRADUAL_UNDERFLOW_H_

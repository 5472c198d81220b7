// Detects the features of the processor.
#ifndef OPS_BASE_CPU_H_
#define OPS_BASE_CPU_H_

namespace tf_strategies {

bool HasAvx2();    // with FMA and F16C
bool HasAvx512();  // F, BW, DQ and VL

// For a loop that polls: lets the core's other hardware thread run for some cycles.
inline void RelaxCpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tf_strategies

#endif  // OPS_BASE_CPU_H_

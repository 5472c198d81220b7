#include "ops/base/cpu.h"

namespace tf_strategies {

#if defined(__x86_64__)

// Every processor with AVX2 and FMA has F16C too, which not every compiler can ask for by name.
bool HasAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

#else

bool HasAvx2() { return false; }
bool HasAvx512() { return false; }

#endif

}  // namespace tf_strategies

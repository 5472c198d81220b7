// The kernels for AVX2 and F16C. Only functions defined between the pragmas may use these instructions:
// everything that is shared with other files is included before.
#include "ops/reduce/path_x86.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ops/base/dtype.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif

#include "ops/base/half_avx2.h"
#include "ops/reduce/kernels.h"

namespace tf_strategies::reduce {
void ReduceAvx2(ReduceOp op, DType dtype, void* destination, const void* source, int64_t count) {
  ReduceAny<32, Avx2Float16Format>(op, dtype, destination, source, count);
}

void DivideAvx2(DType dtype, void* buffer, int64_t count, int64_t divisor) {
  DivideAny<32, Avx2Float16Format>(dtype, buffer, count, divisor);
}

}  // namespace tf_strategies::reduce

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // __x86_64__

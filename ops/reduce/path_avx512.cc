// The kernels for AVX-512 (F, BW, DQ, VL). Only functions defined between the pragmas may use these
// instructions: everything that is shared with other files is included before.
#include "ops/reduce/path_x86.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ops/base/dtype.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif

#include "ops/base/half_avx512.h"
#include "ops/reduce/kernels.h"

namespace tf_strategies::reduce {
void ReduceAvx512(ReduceOp op, DType dtype, void* destination, const void* source, int64_t count) {
  ReduceAny<64, Avx512Float16Format>(op, dtype, destination, source, count);
}

void DivideAvx512(DType dtype, void* buffer, int64_t count, int64_t divisor) {
  DivideAny<64, Avx512Float16Format>(dtype, buffer, count, divisor);
}

}  // namespace tf_strategies::reduce

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // __x86_64__

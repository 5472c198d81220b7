// The pass for AVX2 and F16C. Only functions defined between the pragmas may use these instructions:
// everything that is shared with other files is included before.
#include "ops/compress/path_x86.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "ops/base/dtype.h"
#include "ops/compress/paths.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif

#include "ops/base/half_avx2.h"
#include "ops/compress/scan.h"

namespace tf_strategies::compress {

int64_t ScanAvx2(DType dtype, const void* gradient, float* residual, int64_t begin, int64_t end,
                 int32_t threshold, Candidate* candidates) {
  return ScanAny<32, Avx2Float16Format>(dtype, gradient, residual, begin, end, threshold, candidates);
}

}  // namespace tf_strategies::compress

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // __x86_64__

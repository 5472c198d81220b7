// The pass for AVX-512 (F, BW, DQ, VL). Only functions defined between the pragmas may use these
// instructions: everything that is shared with other files is included before.
#include "ops/compress/path_x86.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "ops/base/dtype.h"
#include "ops/compress/paths.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif

#include "ops/base/half_avx512.h"
#include "ops/compress/scan.h"

namespace tf_strategies::compress {

int64_t ScanAvx512(DType dtype, const void* gradient, float* residual, int64_t begin, int64_t end,
                   int32_t threshold, Candidate* candidates) {
  return ScanAny<64, Avx512Float16Format>(dtype, gradient, residual, begin, end, threshold, candidates);
}

}  // namespace tf_strategies::compress

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // __x86_64__

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

#include "ops/reduce/kernels.h"

namespace tf_strategies::reduce {
namespace {

struct HardwareFloat16Format {
  using Floats = HalfLanes<32>::Floats;
  using Words = HalfLanes<32>::Words;

  static TFS_INLINE void Load(const uint16_t* from, Floats& to) {
    to = (Floats)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }

  static TFS_INLINE void Store(const Floats& from, uint16_t* to) {
    // Sends every NaN to the positive quiet one first; the conversion keeps its upper bits.
    const Words nan = (Words)(from != from);
    const Words bits = ((Words)from & ~nan) | (nan & 0x7FC00000);
    const __m128i halves = _mm256_cvtps_ph((__m256)bits, _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
  }
};

}  // namespace

void ReduceAvx2(ReduceOp op, DType dtype, void* destination, const void* source, int64_t count) {
  ReduceAny<32, HardwareFloat16Format>(op, dtype, destination, source, count);
}

void DivideAvx2(DType dtype, void* buffer, int64_t count, int64_t divisor) {
  DivideAny<32, HardwareFloat16Format>(dtype, buffer, count, divisor);
}

}  // namespace tf_strategies::reduce

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // __x86_64__

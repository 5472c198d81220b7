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

#include "ops/reduce/kernels.h"

namespace tf_strategies::reduce {
namespace {

struct HardwareFloat16Format {
  using Floats = HalfLanes<64>::Floats;
  using Words = HalfLanes<64>::Words;
  // The zero-masking forms with all lanes set: GCC 12 warns of an uninitialised operand in the plain ones.
  static constexpr uint16_t kAllLanes = 0xFFFF;

  static TFS_INLINE void Load(const uint16_t* from, Floats& to) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    to = (Floats)_mm512_maskz_cvtph_ps(kAllLanes, halves);
  }

  static TFS_INLINE void Store(const Floats& from, uint16_t* to) {
    // Sends every NaN to the positive quiet one first; the conversion keeps its upper bits.
    const Words nan = (Words)(from != from);
    const Words bits = ((Words)from & ~nan) | (nan & 0x7FC00000);
    const __m256i halves = _mm512_maskz_cvtps_ph(kAllLanes, (__m512)bits, _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
  }
};

}  // namespace

void ReduceAvx512(ReduceOp op, DType dtype, void* destination, const void* source, int64_t count) {
  ReduceAny<64, HardwareFloat16Format>(op, dtype, destination, source, count);
}

void DivideAvx512(DType dtype, void* buffer, int64_t count, int64_t divisor) {
  DivideAny<64, HardwareFloat16Format>(dtype, buffer, count, divisor);
}

}  // namespace tf_strategies::reduce

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // __x86_64__

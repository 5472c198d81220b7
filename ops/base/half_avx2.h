// float16 in registers of AVX2 and F16C, converted by the processor: as SoftwareFloat16Format of half.h. To be included where
// these instructions may be used, after <immintrin.h>.
#ifndef OPS_BASE_HALF_AVX2_H_
#define OPS_BASE_HALF_AVX2_H_

#include "ops/base/half.h"

namespace tf_strategies {

struct Avx2Float16Format {
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

}  // namespace tf_strategies

#endif  // OPS_BASE_HALF_AVX2_H_

// float16 in registers of AVX-512, converted by the processor: as SoftwareFloat16Format of half.h. To be included where
// these instructions may be used, after <immintrin.h>.
#ifndef OPS_BASE_HALF_AVX512_H_
#define OPS_BASE_HALF_AVX512_H_

#include "ops/base/half.h"

namespace tf_strategies {

struct Avx512Float16Format {
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

}  // namespace tf_strategies

#endif  // OPS_BASE_HALF_AVX512_H_

// float16 and bfloat16 in registers of float32: Load widens exactly, Store rounds to nearest even and makes
// every NaN the canonical quiet one. No step makes or takes a subnormal float32 that is not one itself, so
// flushing modes of the processor change nothing for float16.
#ifndef OPS_BASE_HALF_H_
#define OPS_BASE_HALF_H_

#include <cstdint>
#include <cstring>

#define TFS_INLINE inline __attribute__((always_inline))

namespace tf_strategies {

// Vectors of kBytes / 4 lanes. Written out for each width: GCC does not convert vectors of a width that
// depends on a template parameter.
template <int kBytes>
struct HalfLanes;

#define TFS_HALF_LANES(BYTES)                                           \
  template <>                                                           \
  struct HalfLanes<BYTES> {                                             \
    typedef float Floats __attribute__((vector_size(BYTES)));           \
    typedef int32_t Words __attribute__((vector_size(BYTES)));          \
    typedef uint32_t UnsignedWords __attribute__((vector_size(BYTES))); \
    typedef uint16_t Halves __attribute__((vector_size(BYTES / 2)));    \
    static TFS_INLINE void Widen(const uint16_t* from, Words& to) {     \
      Halves halves;                                                    \
      std::memcpy(&halves, from, sizeof(halves));                       \
      to = __builtin_convertvector(halves, Words);                      \
    }                                                                   \
    static TFS_INLINE void Narrow(const Words& from, uint16_t* to) {    \
      const Halves halves = __builtin_convertvector(from, Halves);      \
      std::memcpy(to, &halves, sizeof(halves));                         \
    }                                                                   \
  }
TFS_HALF_LANES(16);
TFS_HALF_LANES(32);
TFS_HALF_LANES(64);
#undef TFS_HALF_LANES

// 8 bits of exponent, 7 of fraction: the upper half of a float32.
template <int kBytes>
struct BFloat16Format {
  using L = HalfLanes<kBytes>;
  using Floats = typename L::Floats;
  using Words = typename L::Words;
  using UnsignedWords = typename L::UnsignedWords;

  static TFS_INLINE void Load(const uint16_t* from, Floats& to) {
    Words words;
    L::Widen(from, words);
    to = (Floats)(words << 16);
  }

  // Adds just under half of the last place, or exactly half where the last place is odd, and cuts.
  static TFS_INLINE void Store(const Floats& from, uint16_t* to) {
    const UnsignedWords bits = (UnsignedWords)from;
    const Words rounded = (Words)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
    const Words nan = (Words)(from != from);
    L::Narrow((rounded & ~nan) | (nan & 0x7FC0), to);
  }
};

// 5 bits of exponent (bias 15), 10 of fraction.
template <int kBytes>
struct SoftwareFloat16Format {
  using L = HalfLanes<kBytes>;
  using Floats = typename L::Floats;
  using Words = typename L::Words;

  static TFS_INLINE void Load(const uint16_t* from, Floats& to) {
    Words words;
    L::Widen(from, words);
    const Words magnitude = words & 0x7FFF;
    const Words sign = (words & 0x8000) << 16;
    const Words normal = (magnitude << 13) + ((127 - 15) << 23);
    const Words infinite_or_nan = (magnitude << 13) | 0x7F800000;
    const Words subnormal = (Words)(__builtin_convertvector(magnitude, Floats) * 0x1p-24f);
    const Words is_large = magnitude >= 0x7C00;
    const Words is_small = magnitude < 0x0400;
    const Words other = ~(is_large | is_small);
    to = (Floats)((normal & other) | (infinite_or_nan & is_large) | (subnormal & is_small) | sign);
  }

  // Adding 0.5, whose last place is 2^-24 like that of a subnormal float16, rounds a subnormal.
  static TFS_INLINE void Store(const Floats& from, uint16_t* to) {
    const Words bits = (Words)from;
    const Words magnitude = bits & 0x7FFFFFFF;
    const Words sign = (bits >> 16) & 0x8000;
    const Words normal = ((magnitude + 0x0FFF + ((magnitude >> 13) & 1)) >> 13) - ((127 - 15) << 10);
    const Words subnormal = (Words)((Floats)magnitude + 0.5f) - 0x3F000000;
    const Words is_nan = magnitude > 0x7F800000;
    const Words is_infinite = (magnitude >= 0x477FF000) & ~is_nan;  // 65520 and above
    const Words is_subnormal = magnitude < 0x38800000;              // below 2^-14
    const Words is_normal = ~(is_nan | is_infinite | is_subnormal);
    L::Narrow((is_nan & 0x7E00) | (~is_nan & sign) | (is_infinite & 0x7C00) | (normal & is_normal) |
                  (subnormal & is_subnormal),
              to);
  }
};

}  // namespace tf_strategies

#endif  // OPS_BASE_HALF_H_

// Random words that are a function of a key and a counter, so the same on any number of threads.
//
// Source: Philox4x32-10, Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
#ifndef OPS_COMPRESS_PHILOX_H_
#define OPS_COMPRESS_PHILOX_H_

#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tf_strategies::compress {

struct Seed {
  uint64_t key = 0;
  uint64_t stream = 0;
};

inline constexpr int kPhiloxLanes = 16;

using PhiloxWords = uint32_t[4][kPhiloxLanes];

// One word of some lanes, each in the low half of 64 bits; what the high halves hold makes no difference.
#if defined(__SSE2__)
struct PhiloxLanes {
  static constexpr int kCount = 2;
  static PhiloxLanes Of(uint64_t first, uint64_t second) {
    return {_mm_set_epi64x(static_cast<int64_t>(second), static_cast<int64_t>(first))};
  }
  friend PhiloxLanes operator*(PhiloxLanes a, PhiloxLanes b) { return {_mm_mul_epu32(a.value, b.value)}; }
  friend PhiloxLanes operator^(PhiloxLanes a, PhiloxLanes b) { return {_mm_xor_si128(a.value, b.value)}; }
  PhiloxLanes High() const { return {_mm_srli_epi64(value, 32)}; }
  void Store(uint32_t* to) const {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_shuffle_epi32(value, _MM_SHUFFLE(3, 1, 2, 0)));
  }

  __m128i value;
};
#else
struct PhiloxLanes {
  static constexpr int kCount = 2;
  static PhiloxLanes Of(uint64_t first, uint64_t second) { return {{first, second}}; }
  friend PhiloxLanes operator*(PhiloxLanes a, PhiloxLanes b) {
    return {{uint64_t{static_cast<uint32_t>(a.value[0])} * static_cast<uint32_t>(b.value[0]),
             uint64_t{static_cast<uint32_t>(a.value[1])} * static_cast<uint32_t>(b.value[1])}};
  }
  friend PhiloxLanes operator^(PhiloxLanes a, PhiloxLanes b) {
    return {{a.value[0] ^ b.value[0], a.value[1] ^ b.value[1]}};
  }
  PhiloxLanes High() const { return {{value[0] >> 32, value[1] >> 32}}; }
  void Store(uint32_t* to) const {
    to[0] = static_cast<uint32_t>(value[0]);
    to[1] = static_cast<uint32_t>(value[1]);
  }

  uint64_t value[2];
};
#endif

// words[w][lane] is word w of the block whose counter is {counter + lane, seed.stream}, 64 bits each, low words first.
inline void PhiloxBlocks(Seed seed, uint64_t counter, PhiloxWords& words) {
  const auto all = [](uint32_t word) { return PhiloxLanes::Of(word, word); };
  const PhiloxLanes multiplier0 = all(0xD2511F53), multiplier2 = all(0xCD9E8D57);
  for (int lane = 0; lane < kPhiloxLanes; lane += PhiloxLanes::kCount) {
    const uint64_t first = counter + static_cast<uint64_t>(lane), second = first + 1;
    PhiloxLanes word0 = PhiloxLanes::Of(first, second), word1 = word0.High();
    PhiloxLanes word2 = PhiloxLanes::Of(seed.stream, seed.stream), word3 = word2.High();
    auto key0 = static_cast<uint32_t>(seed.key);
    auto key1 = static_cast<uint32_t>(seed.key >> 32);
    for (int round = 0; round < 10; ++round) {
      const PhiloxLanes product0 = word0 * multiplier0, product2 = word2 * multiplier2;
      word0 = product2.High() ^ word1 ^ all(key0);
      word2 = product0.High() ^ word3 ^ all(key1);
      word1 = product2;
      word3 = product0;
      key0 += 0x9E3779B9;
      key1 += 0xBB67AE85;
    }
    word0.Store(&words[0][lane]);
    word1.Store(&words[1][lane]);
    word2.Store(&words[2][lane]);
    word3.Store(&words[3][lane]);
  }
}

}  // namespace tf_strategies::compress

#endif  // OPS_COMPRESS_PHILOX_H_

// Random words as a function of a key and a counter, so they are the same on any number of threads.
//
// Source: Philox4x32-10, Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
#ifndef OPS_COMPRESS_PHILOX_H_
#define OPS_COMPRESS_PHILOX_H_

#include <cstdint>

#include "ops/base/host_device.h"

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

// One word in the low half of 64 bits. The high half is ignored.
struct PhiloxLane {
  static constexpr int kCount = 1;
  TFS_HOST_DEVICE static PhiloxLane All(uint64_t value) { return {value}; }
  TFS_HOST_DEVICE static PhiloxLane From(uint64_t first) { return {first}; }
  TFS_HOST_DEVICE friend PhiloxLane operator*(PhiloxLane a, PhiloxLane b) {
    return {uint64_t{static_cast<uint32_t>(a.value)} * static_cast<uint32_t>(b.value)};
  }
  TFS_HOST_DEVICE friend PhiloxLane operator^(PhiloxLane a, PhiloxLane b) { return {a.value ^ b.value}; }
  TFS_HOST_DEVICE PhiloxLane High() const { return {value >> 32}; }
  TFS_HOST_DEVICE void Store(uint32_t* to) const { *to = static_cast<uint32_t>(value); }

  uint64_t value;
};

// The words of the blocks whose counters are {counter, counter + 1, ...; seed.stream}, 64 bits each, low words first: as many as
// Lanes has.
template <typename Lanes>
TFS_HOST_DEVICE inline void PhiloxRounds(Seed seed, uint64_t counter, Lanes (&words)[4]) {
  const Lanes multiplier0 = Lanes::All(0xD2511F53), multiplier2 = Lanes::All(0xCD9E8D57);
  Lanes word0 = Lanes::From(counter), word1 = word0.High();
  Lanes word2 = Lanes::All(seed.stream), word3 = word2.High();
  auto key0 = static_cast<uint32_t>(seed.key);
  auto key1 = static_cast<uint32_t>(seed.key >> 32);
  for (int round = 0; round < 10; ++round) {
    const Lanes product0 = word0 * multiplier0, product2 = word2 * multiplier2;
    word0 = product2.High() ^ word1 ^ Lanes::All(key0);
    word2 = product0.High() ^ word3 ^ Lanes::All(key1);
    word1 = product2;
    word3 = product0;
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  words[0] = word0;
  words[1] = word1;
  words[2] = word2;
  words[3] = word3;
}

// The words of one block.
TFS_HOST_DEVICE inline void PhiloxBlock(Seed seed, uint64_t counter, uint32_t (&words)[4]) {
  PhiloxLane lanes[4];
  PhiloxRounds(seed, counter, lanes);
  for (int w = 0; w < 4; ++w) lanes[w].Store(&words[w]);
}

#ifndef __CUDACC__

// Two lanes, as PhiloxLane.
#if defined(__SSE2__)
struct PhiloxLanes {
  static constexpr int kCount = 2;
  static PhiloxLanes All(uint64_t value) { return {_mm_set1_epi64x(static_cast<int64_t>(value))}; }
  static PhiloxLanes From(uint64_t first) {
    return {_mm_set_epi64x(static_cast<int64_t>(first + 1), static_cast<int64_t>(first))};
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
using PhiloxLanes = PhiloxLane;
#endif

// words[w][lane] is word w of the block whose counter is {counter + lane, seed.stream}.
inline void PhiloxBlocks(Seed seed, uint64_t counter, PhiloxWords& words) {
  for (int lane = 0; lane < kPhiloxLanes; lane += PhiloxLanes::kCount) {
    PhiloxLanes lanes[4];
    PhiloxRounds(seed, counter + static_cast<uint64_t>(lane), lanes);
    for (int w = 0; w < 4; ++w) lanes[w].Store(&words[w][lane]);
  }
}

#endif  // __CUDACC__

}  // namespace tf_strategies::compress

#endif  // OPS_COMPRESS_PHILOX_H_

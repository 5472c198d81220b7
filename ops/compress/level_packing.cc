#include "ops/compress/level_packing.h"

#include <cstring>

namespace tf_strategies::compress {
namespace {

// The levels of every byte.
template <int kBits>
struct Table {
  static constexpr int kLevels = 8 / kBits;
  int8_t of[256][kLevels] = {};
  constexpr Table() {
    for (int byte = 0; byte < 256; ++byte) {
      for (int i = 0; i < kLevels; ++i) of[byte][i] = LevelOf(kBits, byte >> kBits * i & ((1 << kBits) - 1));
    }
  }
};

template <int kBits>
constexpr Table<kBits> kTable;

template <int kBits>
void Pack(const int8_t* levels, int64_t n, uint8_t* to) {
  constexpr int kLevels = 8 / kBits;
  int64_t i = 0;
  for (; i + kLevels <= n; i += kLevels) {
    int byte = 0;
    for (int j = 0; j < kLevels; ++j) byte |= CodeOf(kBits, levels[i + j]) << kBits * j;
    *to++ = static_cast<uint8_t>(byte);
  }
  if (i == n) return;
  int byte = 0;
  for (int j = 0; i + j < n; ++j) byte |= CodeOf(kBits, levels[i + j]) << kBits * j;
  *to = static_cast<uint8_t>(byte);
}

// Reads the levels of whole bytes. For 4 bits a loop without a table becomes vector instructions, which are faster.
template <int kBits>
void UnpackBytes(const uint8_t* from, int64_t bytes, int8_t* levels) {
  constexpr int kLevels = 8 / kBits;
  for (int64_t i = 0; i < bytes; ++i) {
    if constexpr (kBits == 4) {
      levels[2 * i] = LevelOf(4, from[i] & 15);
      levels[2 * i + 1] = LevelOf(4, from[i] >> 4);
    } else {
      std::memcpy(levels + kLevels * i, kTable<kBits>.of[from[i]], kLevels);
    }
  }
}

template <int kBits>
void Unpack(const uint8_t* from, int64_t first, int64_t n, int8_t* levels) {
  constexpr int kLevels = 8 / kBits;
  const auto& table = kTable<kBits>.of;
  const auto level = [&](int64_t i) { return table[from[i / kLevels]][i % kLevels]; };
  const int64_t end = first + n;
  for (; first < end && first % kLevels != 0; ++first) *levels++ = level(first);
  const int64_t bytes = (end - first) / kLevels;
  UnpackBytes<kBits>(from + first / kLevels, bytes, levels);
  first += bytes * kLevels;
  levels += bytes * kLevels;
  for (; first < end; ++first) *levels++ = level(first);
}

}  // namespace

void PackLevels(int bits, const int8_t* levels, int64_t n, uint8_t* to) {
  switch (bits) {
    case 1: return Pack<1>(levels, n, to);
    case 2: return Pack<2>(levels, n, to);
    case 4: return Pack<4>(levels, n, to);
    default:
      if (n > 0) std::memcpy(to, levels, n);
  }
}

void UnpackLevels(int bits, const uint8_t* from, int64_t first, int64_t n, int8_t* levels) {
  switch (bits) {
    case 1: return Unpack<1>(from, first, n, levels);
    case 2: return Unpack<2>(from, first, n, levels);
    case 4: return Unpack<4>(from, first, n, levels);
    default:
      if (n > 0) std::memcpy(levels, from + first, n);
  }
}

}  // namespace tf_strategies::compress

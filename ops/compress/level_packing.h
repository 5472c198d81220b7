// Small integers packed into bytes: the first in the lowest bits.
//
// 8 bits: as they are. 2 bits: 0, 1 and -1 as the codes 0, 1 and 3; code 2 is read as 0. 1 bit: 1 and -1 as the codes 0 and 1.
#ifndef OPS_COMPRESS_LEVEL_PACKING_H_
#define OPS_COMPRESS_LEVEL_PACKING_H_

#include <cstdint>

namespace tf_strategies::compress {

// What n levels of 1, 2 or 8 bits take.
inline constexpr int64_t PackedBytes(int bits, int64_t n) { return (n * bits + 7) / 8; }

// Writes levels [n] to the PackedBytes at `to`.
void PackLevels(int bits, const int8_t* levels, int64_t n, uint8_t* to);

// Reads levels [n], from the level `first` of those packed at `from` on.
void UnpackLevels(int bits, const uint8_t* from, int64_t first, int64_t n, int8_t* levels);

}  // namespace tf_strategies::compress

#endif  // OPS_COMPRESS_LEVEL_PACKING_H_

// Packs small integers into bytes, the first in the lowest bits.
//
// 8 and 4 bits: in two's complement. 2 bits: 0, 1 and -1 as the codes 0, 1 and 3; code 2 is read as 0. 1 bit: 1 and -1 as the
// codes 0 and 1.
#ifndef OPS_COMPRESS_LEVEL_PACKING_H_
#define OPS_COMPRESS_LEVEL_PACKING_H_

#include <cstdint>

#include "ops/base/host_device.h"

namespace tf_strategies::compress {

// The number of bytes of n levels of 1, 2, 4 or 8 bits.
TFS_HOST_DEVICE inline constexpr int64_t PackedBytes(int bits, int64_t n) { return (n * bits + 7) / 8; }

TFS_HOST_DEVICE inline constexpr int CodeOf(int bits, int8_t level) {
  return bits == 1 ? static_cast<uint8_t>(level) >> 7 : level & ((1 << bits) - 1);
}

TFS_HOST_DEVICE inline constexpr int8_t LevelOf(int bits, int code) {
  if (bits == 1) return static_cast<int8_t>(1 - 2 * code);
  if (bits == 2) return static_cast<int8_t>(code == 3 ? -1 : code & 1);
  if (bits == 4) return static_cast<int8_t>((code ^ 8) - 8);
  return static_cast<int8_t>(code);
}

// Writes levels [n] to the PackedBytes at `to`.
void PackLevels(int bits, const int8_t* levels, int64_t n, uint8_t* to);

// Reads levels [n] from those packed at `from`, starting with level `first`.
void UnpackLevels(int bits, const uint8_t* from, int64_t first, int64_t n, int8_t* levels);

}  // namespace tf_strategies::compress

#endif  // OPS_COMPRESS_LEVEL_PACKING_H_

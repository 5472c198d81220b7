// Encodes ascending indices in few bytes: as gaps, where each block of 128 uses the bits of its largest gap,
// or as a bitmap.
//
// Gaps: one byte for each block, the bits of its gaps (0 to 48), then the blocks, each from a new byte on. A gap is the number of
// indices left out before an index. One large gap widens its own block only.
// Bitmap: bit i % 8 of byte i / 8 tells whether index i is there.
#ifndef OPS_COMPRESS_INDEX_CODING_H_
#define OPS_COMPRESS_INDEX_CODING_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tf_strategies::compress {

enum class IndexCoding : uint8_t { kGaps = 0, kBitmap = 1 };

// Appends indices [k], strictly ascending in [0, count), in the coding with fewer bytes. count <= kMaxCount.
// Returns the coding.
IndexCoding AppendIndices(const int64_t* indices, int64_t k, int64_t count, std::vector<uint8_t>* to);

// Reads indices [k] from the beginning of bytes [size], and sets `used` to the number of bytes read. Never
// reads beyond the bytes. Returns a description of an error, or ""; then the indices are strictly ascending
// in [0, count).
std::string ReadIndices(IndexCoding coding, const uint8_t* bytes, int64_t size, int64_t k, int64_t count,
                        int64_t* indices, int64_t* used);

}  // namespace tf_strategies::compress

#endif  // OPS_COMPRESS_INDEX_CODING_H_

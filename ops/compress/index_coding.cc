#include "ops/compress/index_coding.h"

#include <algorithm>
#include <cstring>

#include "ops/compress/message.h"

namespace tf_strategies::compress {
namespace {

constexpr int64_t kBlock = 128;
constexpr int kMaxBits = 48;
static_assert(kMaxCount == int64_t{1} << kMaxBits, "every gap fits");

int64_t Blocks(int64_t k) { return (k + kBlock - 1) / kBlock; }
int64_t BytesOf(int64_t bits) { return (bits + 7) / 8; }

uint64_t Gap(const int64_t* indices, int64_t i) {
  return static_cast<uint64_t>(indices[i] - (i > 0 ? indices[i - 1] : -1) - 1);
}

int BitsOfBlock(const int64_t* indices, int64_t begin, int64_t end) {
  uint64_t any = 0;
  for (int64_t i = begin; i < end; ++i) any |= Gap(indices, i);
  return any == 0 ? 0 : 64 - __builtin_clzll(any);
}

void AppendBlock(const int64_t* indices, int64_t begin, int64_t end, int bits, std::vector<uint8_t>* to) {
  uint64_t waiting = 0;
  int filled = 0;
  for (int64_t i = begin; i < end; ++i) {
    waiting |= Gap(indices, i) << filled;
    for (filled += bits; filled >= 8; filled -= 8, waiting >>= 8)
      to->push_back(static_cast<uint8_t>(waiting));
  }
  if (filled > 0) to->push_back(static_cast<uint8_t>(waiting));
}

void AppendBitmap(const int64_t* indices, int64_t k, int64_t count, std::vector<uint8_t>* to) {
  const size_t before = to->size();
  to->resize(before + BytesOf(count));
  uint8_t* const map = to->data() + before;
  for (int64_t i = 0; i < k; ++i) map[indices[i] / 8] |= static_cast<uint8_t>(1 << indices[i] % 8);
}

// At least 8 bytes can be read behind the block. Returns the last index.
int64_t ReadBlock(const uint8_t* block, int64_t n, int bits, int64_t last, int64_t* indices) {
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  for (int64_t i = 0; i < n; ++i) {
    uint64_t word;
    std::memcpy(&word, block + i * bits / 8, sizeof(word));
    last += static_cast<int64_t>((word >> (i * bits % 8)) & mask) + 1;
    indices[i] = last;
  }
  return last;
}

std::string ReadGaps(const uint8_t* bytes, int64_t size, int64_t k, int64_t count, int64_t* indices,
                     int64_t* used) {
  constexpr int64_t kMargin = sizeof(uint64_t);
  const int64_t blocks = Blocks(k);
  if (blocks > size) {
    return "should have the widths of " + std::to_string(blocks) + " blocks; " + std::to_string(size) +
           " bytes are left";
  }
  int64_t at = blocks;
  int64_t last = -1;
  for (int64_t block = 0; block < blocks; ++block) {
    const int bits = bytes[block];
    if (bits > kMaxBits) {
      return "has gaps of " + std::to_string(bits) + " bits in block " + std::to_string(block);
    }
    const int64_t begin = block * kBlock;
    const int64_t n = std::min(kBlock, k - begin);
    const int64_t length = BytesOf(n * bits);
    if (length > size - at) {
      return "ends within the indices: block " + std::to_string(block) + " has " + std::to_string(length) +
             " bytes, and " + std::to_string(size - at) + " are left";
    }
    if (size - at - length >= kMargin) {
      last = ReadBlock(bytes + at, n, bits, last, indices + begin);
    } else {
      uint8_t copy[kBlock * kMaxBits / 8 + kMargin] = {};
      std::memcpy(copy, bytes + at, length);
      last = ReadBlock(copy, n, bits, last, indices + begin);
    }
    if (last >= count) {
      return "has index " + std::to_string(last) + ", of " + std::to_string(count) + " elements";
    }
    at += length;
  }
  *used = at;
  return "";
}

std::string ReadBitmap(const uint8_t* bytes, int64_t size, int64_t k, int64_t count, int64_t* indices,
                       int64_t* used) {
  const int64_t length = BytesOf(count);
  if (length > size) {
    return "should have a bitmap of " + std::to_string(length) + " bytes; " + std::to_string(size) +
           " are left";
  }
  int64_t found = 0;
  for (int64_t begin = 0; begin < length; begin += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + begin, std::min<int64_t>(8, length - begin));
    for (; word != 0; word &= word - 1) {
      const int64_t index = begin * 8 + __builtin_ctzll(word);
      if (index >= count) {
        return "has index " + std::to_string(index) + ", of " + std::to_string(count) + " elements";
      }
      if (found == k) return "has more indices than the " + std::to_string(k) + " entries of its header";
      indices[found++] = index;
    }
  }
  if (found < k) {
    return "has " + std::to_string(found) + " indices, and " + std::to_string(k) + " entries by its header";
  }
  *used = length;
  return "";
}

}  // namespace

IndexCoding AppendIndices(const int64_t* indices, int64_t k, int64_t count, std::vector<uint8_t>* to) {
  std::vector<uint8_t> widths(Blocks(k));
  int64_t gap_bytes = Blocks(k);
  for (int64_t block = 0; block < Blocks(k); ++block) {
    const int64_t begin = block * kBlock, end = std::min(k, begin + kBlock);
    widths[block] = static_cast<uint8_t>(BitsOfBlock(indices, begin, end));
    gap_bytes += BytesOf((end - begin) * widths[block]);
  }
  if (BytesOf(count) < gap_bytes) {
    AppendBitmap(indices, k, count, to);
    return IndexCoding::kBitmap;
  }
  to->insert(to->end(), widths.begin(), widths.end());
  for (int64_t block = 0; block < Blocks(k); ++block) {
    const int64_t begin = block * kBlock, end = std::min(k, begin + kBlock);
    AppendBlock(indices, begin, end, widths[block], to);
  }
  return IndexCoding::kGaps;
}

std::string ReadIndices(IndexCoding coding, const uint8_t* bytes, int64_t size, int64_t k, int64_t count,
                        int64_t* indices, int64_t* used) {
  switch (coding) {
    case IndexCoding::kGaps: return ReadGaps(bytes, size, k, count, indices, used);
    case IndexCoding::kBitmap: return ReadBitmap(bytes, size, k, count, indices, used);
  }
  return "has indices in coding " + std::to_string(static_cast<int>(coding)) + ", which is not known";
}

}  // namespace tf_strategies::compress

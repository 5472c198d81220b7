#include "ops/communicator/collective.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "ops/transport/transport.h"

namespace tf_strategies {
namespace {

// A hash of 64-bit words, folded to the bits that a message's signature has.
class Hash {
 public:
  // The multiplier is that of MurmurHash2; the shift brings the upper bits, which every bit of the word reaches, down again.
  Hash& Mix(uint64_t word) {
    state_ = (state_ ^ word) * 0xc6a4a7935bd1e995u;
    state_ ^= state_ >> 47;
    return *this;
  }

  // Eight characters at a time. The length is mixed in, so that texts next to each other do not run together.
  Hash& MixText(std::string_view text) {
    Mix(text.size());
    while (!text.empty()) {
      uint64_t word = 0;
      const size_t bytes = std::min(text.size(), sizeof(word));
      std::memcpy(&word, text.data(), bytes);
      Mix(word);
      text.remove_prefix(bytes);
    }
    return *this;
  }
  uint32_t Fold() const {
    const uint64_t folded = state_ ^ state_ >> kSignatureBits ^ state_ >> (2 * kSignatureBits);
    return static_cast<uint32_t>(folded & ((1 << kSignatureBits) - 1));
  }

 private:
  uint64_t state_ = 0x9e3779b97f4a7c15u;
};

}  // namespace

const char* CollectiveKindName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce: return "all_reduce";
    case CollectiveKind::kBroadcast: return "broadcast";
    case CollectiveKind::kAllGather: return "all_gather";
    case CollectiveKind::kAllToAll: return "all_to_all";
    case CollectiveKind::kBarrier: return "barrier";
  }
  return "unknown";
}

std::string Collective::Describe() const {
  std::string text = std::string(CollectiveKindName(kind)) + " '" + name + "'";
  if (!layout.empty()) text += " (" + layout + ")";
  if (kind == CollectiveKind::kBarrier) return text;
  text += std::string(": ") + DTypeName(dtype) + " " +
          (shape.empty() ? "[" + std::to_string(count) + "]" : shape);
  if (kind == CollectiveKind::kAllReduce) text += std::string(", ") + ReduceOpName(op);
  if (kind == CollectiveKind::kBroadcast) text += ", from rank " + std::to_string(root);
  return text;
}

uint32_t Collective::Signature(uint32_t uses) const {
  Hash hash;
  hash.Mix(static_cast<uint64_t>(kind)).Mix(static_cast<uint64_t>(op)).Mix(static_cast<uint64_t>(dtype));
  hash.Mix(root).Mix(algorithm).Mix(uses);
  if (kind != CollectiveKind::kAllToAll) {  // whose ranks have each a count and offsets of their own
    hash.Mix(count);
    for (int64_t offset : offsets) hash.Mix(offset);
  }
  hash.MixText(shape).MixText(layout);
  std::string letters;
  for (char character : name) {
    if (character != '_' && (character < '0' || character > '9')) letters += character;
  }
  return hash.MixText(letters).Fold();
}

}  // namespace tf_strategies

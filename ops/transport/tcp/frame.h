// The frames of the TCP transport: a head of 24 bytes, then the payload of kEager and kData.
//
// A message of up to kEagerBytes is sent at once. A longer one is sent when its reception is known: a receiver says kReady as soon
// as it has a place for a long message, which is mostly before the sender has it; a sender that has heard no kReady says
// kAnnounce, so that the receiver can tell a message that is too long.
#ifndef OPS_TRANSPORT_TCP_FRAME_H_
#define OPS_TRANSPORT_TCP_FRAME_H_

#include <cstddef>
#include <cstdint>

#include "ops/base/status.h"
#include "ops/transport/transport.h"

namespace tf_strategies::tcp {

enum class FrameKind : uint32_t {
  kEager = 1,     // a message, with its payload
  kAnnounce = 2,  // a message whose payload waits for kReady; bytes: its length
  kReady = 3,     // there is a place for the next long message of this key; bytes: of the place
  kData = 4,      // a message whose payload was waited for
};

// In the byte order of the hosts, which are little-endian all.
struct FrameHead {
  FrameKind kind = FrameKind::kEager;
  uint32_t key = 0;  // instance and message of the tag: what is matched
  uint32_t signature = 0;
  uint32_t reserved = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(FrameHead) == 24, "the head of a frame has 24 bytes");

constexpr size_t kEagerBytes = 64 << 10;
constexpr uint64_t kMostBytes = uint64_t{1} << 40;  // of a message
// What a peer may send before it is asked for: bytes of messages, and frames.
constexpr uint64_t kMostEarlyBytes = uint64_t{256} << 20;
constexpr int kMostEarlyFrames = 1 << 17;

static_assert(kInstanceBits + kMessageBits <= 32, "a key has room for what is matched");
inline uint32_t KeyOf(const Tag& tag) { return tag.instance << kMessageBits | tag.message; }

inline bool HasPayload(FrameKind kind) { return kind == FrameKind::kEager || kind == FrameKind::kData; }

// An error for a head that no peer of ours sends.
inline Status Check(const FrameHead& head) {
  switch (head.kind) {
    case FrameKind::kEager:
      if (head.bytes <= kEagerBytes) return Status::Ok();
      break;
    case FrameKind::kAnnounce:
    case FrameKind::kReady:
    case FrameKind::kData:
      if (head.bytes > kEagerBytes && head.bytes <= kMostBytes) return Status::Ok();
      break;
  }
  return InvalidArgument("a frame of kind " + std::to_string(static_cast<uint32_t>(head.kind)) + " with " +
                         std::to_string(head.bytes) + " bytes came");
}

}  // namespace tf_strategies::tcp

#endif  // OPS_TRANSPORT_TCP_FRAME_H_

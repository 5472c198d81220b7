// Encodes the messages between the two ends of a channel. Each is one message of the transport. The bytes of a small
// tensor are part of the message. The bytes of a larger tensor, its payload, follow separately.
#ifndef OPS_CHANNEL_MESSAGE_H_
#define OPS_CHANNEL_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "ops/base/status.h"

namespace tf_strategies {

// Identifies a transfer on both ends: the pair of operations, the step, and the iteration of a loop.
struct TransferId {
  uint32_t key = 0;
  int64_t step = 0;
  uint64_t iteration = 0;

  bool operator<(const TransferId& other) const {
    return std::tie(key, step, iteration) < std::tie(other.key, other.step, other.iteration);
  }
};

// Describes a tensor without its bytes.
struct TensorInfo {
  int32_t dtype = 0;  // a number of the layer above, which is not interpreted here
  std::vector<int64_t> dims;
  size_t bytes = 0;
};

namespace channel {

constexpr int kMostDims = 254;
constexpr size_t kInlineBytes = 4096;    // the largest tensor whose bytes are part of the message
constexpr size_t kMostText = 1024;       // the limit for the text of a kEnd, in bytes
constexpr uint32_t kPayloads = 1 << 28;  // payload numbers are smaller than this

enum class MessageKind : uint32_t {
  kHello = 1,   // the sender is connected
  kTensor = 2,  // announces a tensor, with its bytes or with the number of its payload
  kCancel = 3,  // the receiver discards this payload, unless it has begun to receive it
  kEnd = 4,     // the sender closes the channel, with a reason
};

struct Message {
  MessageKind kind = MessageKind::kHello;
  TransferId id;
  TensorInfo info;
  bool carries_bytes = false;  // kTensor: whether the body has the bytes
  uint32_t payload = 0;        // kTensor without bytes, kCancel
  Code code = Code::kOk;       // kEnd
  std::string body;            // kTensor: the bytes; kEnd: the reason
};

// Returns the size of the longest message that Encode makes and Decode accepts.
size_t MostMessageBytes();

// Returns the bytes of a message. The reason of a kEnd is cut to kMostText.
std::string Encode(const Message& message);

// Returns an error for bytes that Encode cannot have made.
Status Decode(const char* data, size_t bytes, Message* message);

}  // namespace channel
}  // namespace tf_strategies

#endif  // OPS_CHANNEL_MESSAGE_H_

// Encodes the messages between the two ends of a channel. Each is one message of the transport. It contains
// the bytes of a small tensor; those of a larger tensor follow separately.
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
  int32_t dtype = 0;  // a number of the layer above, here only carried
  std::vector<int64_t> dims;
  size_t bytes = 0;
};

namespace channel {

constexpr int kMostDims = 254;
constexpr size_t kInlineBytes = 4096;    // tensors of up to so many bytes travel in the message
constexpr size_t kMostText = 1024;       // bytes of an explanation
constexpr uint32_t kPayloads = 1 << 28;  // payload numbers are below

enum class MessageKind : uint32_t {
  kHello = 1,   // the end is there
  kTensor = 2,  // a tensor comes: with its bytes, or with the number under which they follow
  kCancel = 3,  // whoever has not begun to take in this payload drops it
  kEnd = 4,     // the end goes, and why
};

struct Message {
  MessageKind kind = MessageKind::kHello;
  TransferId id;
  TensorInfo info;
  bool carries_bytes = false;  // kTensor: the bytes are the body
  uint32_t payload = 0;        // kTensor without bytes, kCancel
  Code code = Code::kOk;       // kEnd
  std::string body;            // kTensor: the bytes; kEnd: the text
};

// The longest message that Encode makes and Decode accepts.
size_t MostMessageBytes();

// Cuts the text of a kEnd to kMostText.
std::string Encode(const Message& message);

// Returns an error for bytes that Encode cannot have made.
Status Decode(const char* data, size_t bytes, Message* message);

}  // namespace channel
}  // namespace tf_strategies

#endif  // OPS_CHANNEL_MESSAGE_H_

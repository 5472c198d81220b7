#include "ops/channel/message.h"

#include <algorithm>
#include <cstring>

namespace tf_strategies::channel {
namespace {

constexpr uint32_t kMagic = 0x31534654;  // "TFS1" in little-endian order
constexpr uint32_t kCarriesBytes = kPayloads;
constexpr uint64_t kMostItemBytes = 16;  // the size of the largest element: two doubles

struct Head {
  uint32_t magic;
  uint32_t kind;
  uint32_t key;
  uint32_t payload;  // kCarriesBytes if the body has the bytes
  int64_t step;
  uint64_t iteration;
  uint64_t tensor_bytes;
  int32_t dtype;  // the code in a kEnd
  uint32_t rank;
  uint64_t body_bytes;
};
static_assert(sizeof(Head) == 56, "a header must not have padding");

Status Malformed(const std::string& what) {
  return Mismatch("received a message that no channel of this version of tf_strategies sends: " + what);
}

std::string Number(uint64_t value) { return std::to_string(value); }

Status CheckHead(const Head& head, size_t bytes) {
  if (head.magic != kMagic) return Malformed("it begins with " + Number(head.magic));
  if (head.rank > kMostDims) return Malformed("a tensor of " + Number(head.rank) + " dimensions");
  if (head.body_bytes > std::max(kInlineBytes, kMostText)) {
    return Malformed("a body of " + Number(head.body_bytes) + " bytes");
  }
  const size_t expected = sizeof(Head) + head.rank * sizeof(int64_t) + head.body_bytes;
  if (bytes != expected) return Malformed(Number(bytes) + " bytes instead of " + Number(expected));
  if (head.payload > kCarriesBytes) return Malformed("payload " + Number(head.payload));
  return Status::Ok();
}

Status CheckTensor(const Message& message) {
  uint64_t elements = 1;
  bool fits = true;
  for (int64_t dim : message.info.dims) {
    if (dim < 0) return Malformed("a dimension of " + std::to_string(dim));
    fits = fits && !__builtin_mul_overflow(elements, static_cast<uint64_t>(dim), &elements);
  }
  const uint64_t bytes = message.info.bytes;
  const bool agrees =
      elements == 0 ? bytes == 0 : bytes % elements == 0 && bytes / elements <= kMostItemBytes;
  if (!fits || !agrees) return Malformed(Number(bytes) + " bytes for dimensions that do not fit them");
  const size_t inside = message.body.size();
  if (message.carries_bytes ? inside != message.info.bytes : inside != 0 || message.info.bytes == 0) {
    return Malformed(Number(inside) + " bytes of a tensor of " + Number(message.info.bytes));
  }
  return Status::Ok();
}

}  // namespace

size_t MostMessageBytes() {
  return sizeof(Head) + kMostDims * sizeof(int64_t) + std::max(kInlineBytes, kMostText);
}

std::string Encode(const Message& message) {
  const bool ends = message.kind == MessageKind::kEnd;
  const size_t body = ends ? std::min(message.body.size(), kMostText) : message.body.size();
  Head head{};
  head.magic = kMagic;
  head.kind = static_cast<uint32_t>(message.kind);
  head.key = message.id.key;
  head.payload = message.carries_bytes ? kCarriesBytes : message.payload;
  head.step = message.id.step;
  head.iteration = message.id.iteration;
  head.tensor_bytes = message.info.bytes;
  head.dtype = ends ? static_cast<int32_t>(message.code) : message.info.dtype;
  head.rank = static_cast<uint32_t>(message.info.dims.size());
  head.body_bytes = body;
  std::string encoded(reinterpret_cast<const char*>(&head), sizeof(head));
  encoded.append(reinterpret_cast<const char*>(message.info.dims.data()), head.rank * sizeof(int64_t));
  encoded.append(message.body, 0, body);
  return encoded;
}

Status Decode(const char* data, size_t bytes, Message* message) {
  Head head;
  if (bytes < sizeof(head)) return Malformed("it has " + Number(bytes) + " bytes");
  std::memcpy(&head, data, sizeof(head));
  TFS_RETURN_IF_ERROR(CheckHead(head, bytes));
  data += sizeof(head);
  message->id = {head.key, head.step, head.iteration};
  message->info.dims.resize(head.rank);
  if (head.rank > 0) std::memcpy(message->info.dims.data(), data, head.rank * sizeof(int64_t));
  message->info.dtype = head.dtype;
  message->info.bytes = head.tensor_bytes;
  message->carries_bytes = head.payload == kCarriesBytes;
  message->payload = message->carries_bytes ? 0 : head.payload;
  message->body.assign(data + head.rank * sizeof(int64_t), head.body_bytes);
  message->kind = static_cast<MessageKind>(head.kind);
  switch (message->kind) {
    case MessageKind::kTensor: return CheckTensor(*message);
    case MessageKind::kEnd:
      if (head.dtype <= 0 || head.dtype > static_cast<int32_t>(Code::kAborted)) {
        return Malformed("an end with code " + std::to_string(head.dtype));
      }
      if (head.body_bytes > kMostText) return Malformed("a text of " + Number(head.body_bytes) + " bytes");
      message->code = static_cast<Code>(head.dtype);
      return Status::Ok();
    case MessageKind::kHello:
    case MessageKind::kCancel: return Status::Ok();
  }
  return Malformed("kind " + Number(head.kind));
}

}  // namespace tf_strategies::channel

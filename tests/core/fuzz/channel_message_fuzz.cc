// The messages of a channel: what is decoded is encoded to the same bytes, and everything else is refused as a mismatch.

#include <string>
#include <vector>

#include "ops/base/check.h"
#include "ops/channel/message.h"
#include "tests/core/fuzz/target.h"

namespace tf_strategies::fuzz {

std::vector<std::string> Seeds() {
  using channel::Encode;
  using channel::MessageKind;
  channel::Message hello, announced, carried, empty, cancel, end, wordy;
  announced.kind = carried.kind = empty.kind = MessageKind::kTensor;
  announced.id = {7, -1, 3};
  announced.info = {1, {2, 1 << 12}, 1 << 15};
  announced.payload = channel::kPayloads - 1;
  carried.info = {9, {3}, 12};
  carried.carries_bytes = true;
  carried.body = "twelve bytes";
  empty.info = {1, std::vector<int64_t>(channel::kMostDims, 0), 0};
  empty.carries_bytes = true;
  cancel.kind = MessageKind::kCancel;
  cancel.payload = 5;
  end.kind = MessageKind::kEnd;
  end.code = Code::kAborted;
  end.body = "it was closed";
  wordy = end;
  wordy.body.assign(channel::kMostText, 'x');
  return {Encode(wordy), Encode(hello),  Encode(announced), Encode(carried),
          Encode(empty), Encode(cancel), Encode(end)};
}

}  // namespace tf_strategies::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tf_strategies;
  channel::Message message;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const Status status = channel::Decode(reinterpret_cast<const char*>(data), size, &message);
  if (!status.ok()) {
    TFS_CHECK(status.code() == Code::kMismatch);
    return 0;
  }
  TFS_CHECK_LE(size, channel::MostMessageBytes());
  TFS_CHECK(channel::Encode(message) == bytes);
  if (message.kind != channel::MessageKind::kTensor) return 0;
  uint64_t elements = 1;
  for (const int64_t dim : message.info.dims) {
    TFS_CHECK_GE(dim, 0);
    TFS_CHECK(!__builtin_mul_overflow(elements, static_cast<uint64_t>(dim), &elements));
  }
  TFS_CHECK(elements == 0 ? message.info.bytes == 0 : message.info.bytes % elements == 0);
  if (message.carries_bytes) TFS_CHECK_EQ(message.body.size(), message.info.bytes);
  return 0;
}

#include "ops/compress/message.h"

#include <cstring>

namespace tf_strategies::compress {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "messages are written as they lie in memory");

const char* NameOf(uint8_t kind) {
  switch (static_cast<Kind>(kind)) {
    case Kind::kEntries: return "entries";
    case Kind::kQuantized: return "quantized values";
  }
  return "something unknown";
}

Status Check(const Message& message, Kind kind, int64_t count, int64_t left) {
  const Header& header = message.header;
  const Header ours;
  const auto text = [](int64_t number) { return std::to_string(number); };
  if (header.magic != ours.magic) {
    return Damaged(message, "is no compressed gradient: its first byte is " + text(header.magic) + ", not " +
                                text(ours.magic));
  }
  if (header.version != ours.version) {
    return Damaged(message, "has version " + text(header.version) + ", and this process reads " +
                                text(ours.version) + ": run the same tf_strategies everywhere");
  }
  if (header.kind != static_cast<uint8_t>(kind)) {
    return Damaged(
        message, std::string("holds ") + NameOf(header.kind) + ", not " + NameOf(static_cast<uint8_t>(kind)));
  }
  if (header.count != count) {
    return Damaged(message, "is of a vector of " + text(header.count) + " elements, not " + text(count));
  }
  if (header.entries < 0 || header.entries > count) {
    return Damaged(message, "has " + text(header.entries) + " entries, of " + text(count) + " elements");
  }
  if (header.bytes < static_cast<int64_t>(sizeof(Header)) || header.bytes > left) {
    return Damaged(message, "should have " + text(header.bytes) + " bytes; " + text(left) + " are left");
  }
  return Status::Ok();
}

}  // namespace

Status CheckCount(int64_t count) {
  if (0 <= count && count <= kMaxCount) return Status::Ok();
  return InvalidArgument("count must be between 0 and " + std::to_string(kMaxCount) + "; got " +
                         std::to_string(count));
}

Status Damaged(const Message& message, const std::string& what) {
  return InvalidArgument("message " + std::to_string(message.number) + ", at byte " +
                         std::to_string(message.offset) + ", " + what);
}

Status SplitMessages(const uint8_t* bytes, int64_t size, Kind kind, int64_t count,
                     std::vector<Message>* messages) {
  constexpr int64_t kHeader = sizeof(Header);
  TFS_RETURN_IF_ERROR(CheckCount(count));
  messages->clear();
  for (int64_t offset = 0; offset < size; offset += messages->back().header.bytes) {
    Message message;
    message.number = static_cast<int64_t>(messages->size());
    message.offset = offset;
    const int64_t left = size - offset;
    if (left < kHeader) {
      return Damaged(message, "is cut: " + std::to_string(left) + " bytes are left, and a header has " +
                                  std::to_string(kHeader));
    }
    std::memcpy(&message.header, bytes + offset, kHeader);
    TFS_RETURN_IF_ERROR(Check(message, kind, count, left));
    message.body = bytes + offset + kHeader;
    message.body_bytes = message.header.bytes - kHeader;
    messages->push_back(message);
  }
  return Status::Ok();
}

}  // namespace tf_strategies::compress

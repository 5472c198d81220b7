#include "tests/core/fuzz/frame_script.h"

#include <algorithm>
#include <cstring>

namespace tf_strategies::fuzz {

using tcp::FrameHead;
using tcp::FrameKind;

void PeerStream::Append(const std::string& bytes) {
  if (bytes_.size() + bytes.size() <= kMostStreamBytes) bytes_ += bytes;
}

void PeerStream::Fill(size_t bytes) {
  static const std::string filling = [] {
    std::string all(kMostStreamBytes, '\0');
    for (size_t at = 0; at < all.size(); ++at) all[at] = static_cast<char>(at * 131 + (at >> 8) * 7);
    return all;
  }();
  if (bytes <= filling.size() - bytes_.size()) bytes_.append(filling, bytes_.size(), bytes);
}

void PeerStream::Message(Input* input) {
  FrameHead head;
  head.kind = static_cast<FrameKind>(input->Take<uint8_t>() % 5);
  head.key = input->Take<uint8_t>() % kKeys;
  head.bytes = SizeOf(input->Take<uint8_t>());
  head.signature = static_cast<uint32_t>(bytes_.size());
  Append(std::string(reinterpret_cast<const char*>(&head), sizeof(head)));
  if (tcp::HasPayload(head.kind)) Fill(head.bytes);
}

void PeerStream::Head(Input* input) {
  FrameHead head;
  head.kind = static_cast<FrameKind>(input->Take<uint8_t>());
  head.key = input->Take<uint8_t>() % kKeys;
  const auto size = input->Take<uint8_t>();
  head.bytes = size < 128 ? SizeOf(size) : input->Take<uint64_t>();
  Append(std::string(reinterpret_cast<const char*>(&head), sizeof(head)));
}

std::string MessageAction(uint8_t action, FrameKind kind, uint32_t key, uint8_t size) {
  return {static_cast<char>(action), static_cast<char>(kind), static_cast<char>(key),
          static_cast<char>(size)};
}

PeerMessages ReadByTheBook(const std::string& stream) {
  PeerMessages read;
  size_t at = 0;
  while (at + sizeof(FrameHead) <= stream.size()) {
    FrameHead head;
    std::memcpy(&head, stream.data() + at, sizeof(head));
    at += sizeof(head);
    if (!tcp::Check(head).ok()) {
      read.nonsense = true;
      return read;
    }
    if (head.kind == FrameKind::kReady) {
      ++read.ready[head.key];
      continue;
    }
    std::vector<PeerMessage>& messages = read.by_key[head.key];
    if (head.kind == FrameKind::kAnnounce) {
      messages.push_back({head, head.signature, false, 0});
      continue;
    }
    // The payload of the first message that was announced and has none; of a message of its own, where there is none such.
    auto message = messages.end();
    if (head.kind == FrameKind::kData) {
      message = std::find_if(messages.begin(), messages.end(),
                             [](const PeerMessage& each) { return each.head.kind == FrameKind::kAnnounce; });
    }
    if (message == messages.end())
      message = messages.insert(messages.end(), {head, head.signature, false, 0});
    read.broken_word = message->head.bytes != head.bytes;
    if (read.broken_word || head.bytes > stream.size() - at) return read;
    *message = {head, message->announced_signature, true, at};
    at += head.bytes;
  }
  return read;
}

}  // namespace tf_strategies::fuzz

// A compressed gradient as a message: a header with the kind and the length, then the body.
//
// Messages of several workers are concatenated without gaps, so they have any alignment. All numbers are
// little-endian. The bytes come from other processes: nothing is read before its length and its range are
// checked.
#ifndef OPS_COMPRESS_MESSAGE_H_
#define OPS_COMPRESS_MESSAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ops/base/status.h"

namespace tf_strategies::compress {

enum class Kind : uint8_t {
  kEntries = 1,    // some elements, with their indices: entries.h
  kQuantized = 2,  // all elements, in few bits: quantize.h
};

struct Header {
  uint8_t magic = 0xC7;
  uint8_t version = 1;
  uint8_t kind = 0;
  uint8_t form = 0;     // how the body is written, in the kind's terms
  uint32_t bucket = 0;  // elements that share a scale; 0 for entries
  int64_t count = 0;    // elements of the vector
  int64_t entries = 0;  // elements in the body
  int64_t bytes = 0;    // header and body
};
static_assert(sizeof(Header) == 32, "the header has no padding");

// The largest length of a vector, so that sums of 128 gaps between indices fit into 63 bits.
inline constexpr int64_t kMaxCount = int64_t{1} << 48;

struct Message {
  Header header;
  const uint8_t* body = nullptr;
  int64_t body_bytes = 0;
  int64_t number = 0;  // 0 for the first
  int64_t offset = 0;  // of the header, in bytes
};

// InvalidArgument unless 0 <= count <= kMaxCount.
Status CheckCount(int64_t count);

// An error that names the message.
Status Damaged(const Message& message, const std::string& what);

// Finds the messages in bytes [size]. The bodies are not copied or checked. Returns InvalidArgument if a
// header does not belong to a message of this kind for a vector of `count` elements, or if bytes are missing
// or left over.
Status SplitMessages(const uint8_t* bytes, int64_t size, Kind kind, int64_t count,
                     std::vector<Message>* messages);

}  // namespace tf_strategies::compress

#endif  // OPS_COMPRESS_MESSAGE_H_

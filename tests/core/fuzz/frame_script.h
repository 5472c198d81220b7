// What a peer of the TCP transport says, as actions of an input, and what it means by the book.
#ifndef TESTS_CORE_FUZZ_FRAME_SCRIPT_H_
#define TESTS_CORE_FUZZ_FRAME_SCRIPT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ops/transport/tcp/frame.h"
#include "tests/core/fuzz/input.h"

namespace tf_strategies::fuzz {

inline constexpr uint32_t kKeys = 4;
inline constexpr size_t kSizes[] = {0, 1, 24, 4096, tcp::kEagerBytes, tcp::kEagerBytes + 1, 70000, 100000};
inline constexpr size_t kMostStreamBytes = 512 << 10;  // of one input

inline size_t SizeOf(uint8_t choice) { return kSizes[choice % (sizeof(kSizes) / sizeof(kSizes[0]))]; }

// The bytes of a peer: at each offset another, mostly.
class PeerStream {
 public:
  // Appends a head with a payload, a head, bytes as they are in the input, or so many that nobody chose.
  void Message(Input* input);
  void Head(Input* input);
  void Raw(Input* input) { Append(input->TakeBytes(input->Take<uint8_t>())); }
  void Fill(size_t bytes);

  const std::string& bytes() const { return bytes_; }

 private:
  void Append(const std::string& bytes);

  std::string bytes_;
};

// Actions of a script, to make seeds of: the arguments that PeerStream takes.
std::string MessageAction(uint8_t action, tcp::FrameKind kind, uint32_t key, uint8_t size);

// The frames of a stream by frame.h.
struct PeerMessage {
  tcp::FrameHead head;
  uint32_t announced_signature = 0;  // a peer that lies may name another one with the payload
  bool complete = false;
  size_t payload_at = 0;  // in the stream, when it is complete
};

struct PeerMessages {
  std::map<uint32_t, std::vector<PeerMessage>> by_key;  // in the order of their first frames
  std::map<uint32_t, int> ready;                        // how often a place was named
  bool nonsense = false;                                // a head that no peer of ours sends; all ends there
  bool broken_word = false;                             // data of another length than announced; likewise
};

PeerMessages ReadByTheBook(const std::string& stream);

}  // namespace tf_strategies::fuzz

#endif  // TESTS_CORE_FUZZ_FRAME_SCRIPT_H_

// The frames that leave over one connection, in order.
#ifndef OPS_TRANSPORT_TCP_OUTGOING_H_
#define OPS_TRANSPORT_TCP_OUTGOING_H_

#include <cstddef>
#include <deque>
#include <functional>

#include "ops/base/status.h"
#include "ops/transport/tcp/frame.h"
#include "ops/transport/tcp/stream.h"
#include "ops/transport/transport.h"

namespace tf_strategies::tcp {

class Outgoing {
 public:
  // data: [head.bytes] of a frame with a payload, valid until `done` is called; null for others. done may be empty.
  void Add(const FrameHead& head, const void* data, Transport::SendDone done);

  // Writes what the stream takes, and has it send what it took before. Sets *moved if anything was taken. An error is that of the
  // connection.
  Status Write(Stream* stream, bool* moved);

  // Calls all completions with the error and forgets the frames.
  void Fail(const Status& status);

  bool empty() const { return frames_.empty(); }
  bool blocked() const { return blocked_; }  // whether the stream took less than there was
  void Clear() { frames_.clear(); }

 private:
  struct Frame {
    FrameHead head;
    const char* data;
    Transport::SendDone done;
    size_t bytes() const { return sizeof(FrameHead) + (data == nullptr ? 0 : head.bytes); }
  };

  void Advance(size_t written);

  std::deque<Frame> frames_;
  size_t written_ = 0;  // bytes of the first frame
  bool blocked_ = false;
};

}  // namespace tf_strategies::tcp

#endif  // OPS_TRANSPORT_TCP_OUTGOING_H_

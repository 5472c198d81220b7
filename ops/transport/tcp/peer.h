// One connection of the TCP transport: its messages in both directions, until it is lost.
#ifndef OPS_TRANSPORT_TCP_PEER_H_
#define OPS_TRANSPORT_TCP_PEER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>

#include "ops/base/status.h"
#include "ops/transport/tcp/descriptor.h"
#include "ops/transport/tcp/frame.h"
#include "ops/transport/tcp/incoming.h"
#include "ops/transport/tcp/outgoing.h"
#include "ops/transport/tcp/stream.h"
#include "ops/transport/transport.h"

namespace tf_strategies::tcp {

class Peer {
 public:
  // stream: over the socket.
  Peer(int rank, Descriptor socket, std::unique_ptr<Stream> stream);

  int socket() const { return socket_.get(); }
  // Those that Send was given. Any thread may ask.
  int64_t messages() const { return messages_.load(std::memory_order_relaxed); }
  bool lost() const { return !lost_.ok(); }
  bool established() const { return stream_->Established(); }
  bool has_input() const { return !lost() && stream_->HasInput(); }
  bool has_output() const { return !lost() && !broken_ && (!outgoing_.empty() || stream_->HasOutput()); }
  // Whether output waits for the socket or the handshake.
  bool blocked() const {
    const bool waits = stream_->WaitsForOutput() || !stream_->Established();
    return stream_->HasOutput() || (outgoing_.blocked() && waits);
  }
  // Whether the socket announces that output goes on.
  bool waits_for_output() const { return blocked() && stream_->WaitsForOutput(); }

  // As Transport has them.
  void Send(const Tag& tag, const void* data, size_t bytes, Transport::SendDone done);
  void Receive(const Tag& tag, void* data, size_t bytes, Transport::ReceiveDone done);

  // Move what can move. Return whether anything happened.
  bool Write();
  bool Read();

  // Loses the connection if the two ends have not come to know one another in time. Returns whether that has happened.
  bool CheckDeadline();

  // Forgets all messages.
  void Clear();

 private:
  struct Waiting {
    FrameHead head;
    const void* data;
    Transport::SendDone done;
  };

  void SayReady(uint32_t key, size_t bytes);
  Status Heard(uint32_t key);
  Status Broken(const Status& status) const;
  void Lose(const Status& status);

  const int rank_;
  Descriptor socket_;
  std::unique_ptr<Stream> stream_;
  Outgoing outgoing_;
  Incoming incoming_;
  std::unordered_map<uint32_t, std::deque<Waiting>> waiting_;  // long messages without a place
  std::unordered_map<uint32_t, int> ready_;                    // places without a message, by key
  int ready_places_ = 0;                                       // all of them
  bool broken_ = false;                                        // nothing can be sent
  std::atomic<int64_t> messages_{0};
  Status lost_;
};

}  // namespace tf_strategies::tcp

#endif  // OPS_TRANSPORT_TCP_PEER_H_

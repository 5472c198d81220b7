// Transport: moves bytes between the ranks of a group.
//
// The implementations are UCX (between processes and hosts), TCP (between hosts), by-host (one transport within
// the host, another between hosts), in-process (the ranks are threads, for tests), and faulty (wraps another
// transport and fails or delays one action).
//
// Threading: one call at a time, from any thread. Only Wait, Wake, counters and connections may run at the same time as another
// call.
//
// Ownership: the memory passed to Send and Receive belongs to the caller. It must stay valid until the completion
// is called or, after Cancel, until the transport is destroyed.
//
// Matching: a reception matches the earliest unmatched message with the same source, instance and message number.
// Between two ranks, messages with equal numbers arrive in the order in which they were sent. The signature is not
// matched. It is passed to the receiver, which can detect with it that the two ranks run different collectives.
#ifndef OPS_TRANSPORT_TRANSPORT_H_
#define OPS_TRANSPORT_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ops/base/status.h"

namespace tf_strategies {

// On the wire a tag has 64 bits: source rank, instance, message, signature.
constexpr int kSourceBits = 13;
constexpr int kInstanceBits = 16;
constexpr int kMessageBits = 13;
constexpr int kSignatureBits = 22;

struct Tag {
  uint32_t instance = 0;   // the number of the collective
  uint32_t message = 0;    // the number of the message between these two ranks, within the collective
  uint32_t signature = 0;  // identifies the sender's collective; not matched
};

// The message of a completed reception.
struct Received {
  uint32_t signature = 0;
  size_t bytes = 0;
};

struct TransportCounters {
  int64_t messages_sent = 0;
  int64_t messages_received = 0;
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
};

// What this rank has sent over its connection to a peer, as the system counts it.
struct ConnectionCounters {
  int peer = -1;
  int64_t messages = 0;
  int64_t bytes = 0;  // that have arrived
  double seconds =
      0;  // in which bytes were on their way, without those in which the peer had no room for them
};

// The result of Describe while no message has been sent, if the transport does not know its means earlier.
constexpr char kNothingYet[] = "none yet";

class Transport {
 public:
  using SendDone = std::function<void(const Status&)>;
  using ReceiveDone = std::function<void(const Status&, const Received&)>;

  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Starts to send a message. The completion is called within this call if the operation finishes at once, otherwise
  // within a later call of Progress.
  virtual void Send(int peer, Tag tag, const void* data, size_t bytes, SendDone done) = 0;

  // Starts to receive a message; completions are called as for Send. If the message is longer than `bytes`, the
  // completion gets an error of code kMismatch. A shorter message is no error; the completion gets its length.
  virtual void Receive(int peer, Tag tag, void* data, size_t bytes, ReceiveDone done) = 0;

  // Makes progress without blocking. Returns true if anything happened.
  virtual bool Progress() = 0;

  // Makes the next Wait end at the next event. Returns false if an event is already pending. Then call Progress
  // instead of Wait.
  virtual bool Arm() = 0;

  // Sleeps until an event has happened since Arm, Wake is called, or the timeout (milliseconds) is over.
  virtual void Wait(int timeout_ms) = 0;

  // Returns a descriptor that becomes readable when Wait would end, or -1 if there is none.
  virtual int EventFd() const { return -1; }

  // Ends a Wait in progress, or the next one.
  virtual void Wake() = 0;

  // Cancels all outstanding operations. No completion is called after it returns. The transport cannot be used
  // afterwards.
  virtual void Cancel() = 0;

  // Returns a description of the means of transport, for users: "sysv+cma (same host), tcp".
  virtual std::string Describe() const = 0;

  virtual TransportCounters counters() const = 0;

  // The connections of which the system counts what it has sent, by peer.
  virtual std::vector<ConnectionCounters> connections() const { return {}; }
};

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_TRANSPORT_H_

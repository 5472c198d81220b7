// Transport: moves bytes between the ranks of a group. One interface for all wires: UCX (processes and hosts), TCP of our own,
// by-host (one transport within the host, another between hosts), in-process (ranks are threads, for tests), faulty (wraps another
// and fails or delays the N-th action).
//
// Threading: one call at a time, from any thread; only Wait and Wake may run beside another call.
// Ownership: memory named in Send and Receive belongs to the caller and must stay valid until the completion is called
// or, after Cancel, until the transport is destroyed.
// Matching: a reception matches the earliest unmatched message with the same (source, tag key); between one pair of
// ranks messages with equal keys arrive in the order they were sent. The signature travels with the message, takes no
// part in matching, and is handed to the receiver, which can see with it that the two sides disagree.
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
  uint32_t instance = 0;   // which collective
  uint32_t message = 0;    // which message of it between this pair of ranks
  uint32_t signature = 0;  // what the sender believes the collective is; not matched
};

// What a completed reception brought.
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

// What Describe returns before the first message, where it is not known before.
constexpr char kNothingYet[] = "none yet";

class Transport {
 public:
  using SendDone = std::function<void(const Status&)>;
  using ReceiveDone = std::function<void(const Status&, const Received&)>;

  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // A completion may run inside the call itself (the operation finished at once) or inside a later Progress.
  virtual void Send(int peer, Tag tag, const void* data, size_t bytes, SendDone done) = 0;

  // A message longer than `bytes` completes with an error of code kMismatch; a shorter one completes well, with its length.
  virtual void Receive(int peer, Tag tag, void* data, size_t bytes, ReceiveDone done) = 0;

  // Moves what can move without blocking. Returns whether anything happened.
  virtual bool Progress() = 0;

  // Makes the next Wait end as soon as something happens from now on. Returns false when something already has: then
  // call Progress instead of Wait.
  virtual bool Arm() = 0;

  // Sleeps until something has happened since Arm, Wake is called, or the time (milliseconds) is over.
  virtual void Wait(int timeout_ms) = 0;

  // A descriptor that is readable when Wait would end. Returns -1 where there is none.
  virtual int EventFd() const { return -1; }

  // Ends a Wait in progress, or the next one.
  virtual void Wake() = 0;

  // Gives up everything outstanding: no completion is called after this returns. The transport is of no use afterwards.
  virtual void Cancel() = 0;

  // What carries the bytes, for people: "sysv+cma (same host), tcp".
  virtual std::string Describe() const = 0;

  virtual TransportCounters counters() const = 0;
};

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_TRANSPORT_H_

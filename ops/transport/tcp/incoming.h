// The messages that come over one connection, and the receptions that they are for.
#ifndef OPS_TRANSPORT_TCP_INCOMING_H_
#define OPS_TRANSPORT_TCP_INCOMING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ops/base/status.h"
#include "ops/transport/tcp/frame.h"
#include "ops/transport/tcp/stream.h"
#include "ops/transport/transport.h"

namespace tf_strategies::tcp {

class Incoming {
 public:
  // ready: called with the key and the size of a place for a long message. heard: called with each kReady of the peer.
  using Ready = std::function<void(uint32_t key, size_t bytes)>;
  using Heard = std::function<Status(uint32_t key)>;

  Incoming(Ready ready, Heard heard);

  // A reception of the earliest message of this key that none was given.
  void Receive(uint32_t key, void* data, size_t bytes, Transport::ReceiveDone done);

  // Reads what is there. An error is that of the connection: it has ended, or the peer sends nonsense.
  Status Read(Stream* stream, bool* moved);

  // Fails all receptions but those whose messages are here.
  void Fail(const Status& status);

  // Whether a whole message of this key waits for its reception.
  bool HasArrived(uint32_t key) const;

  // Forgets all receptions.
  void Clear();

 private:
  struct Reception {
    char* data = nullptr;
    size_t bytes = 0;
    Transport::ReceiveDone done;
    bool ready_sent = false;
    FrameHead head;  // of the message, once it is known
  };

  // A message that came before its reception.
  struct Early {
    FrameHead head;
    std::unique_ptr<char[]> payload;  // null for one that was announced
    bool coming = false;              // it was announced, and its payload comes now
  };

  struct Key {
    std::list<Reception> posted;     // without a message
    std::list<Reception> announced;  // their payloads come in this order
    std::list<Early> early;
    int dropped = 0;  // payloads that come and are not wanted
    bool empty() const { return posted.empty() && announced.empty() && early.empty() && dropped == 0; }
  };

  // The payload that comes now.
  struct Payload {
    FrameHead head;
    char* to = nullptr;  // null: it is dropped
    size_t left = 0;
    Reception reception;
    std::unique_ptr<char[]> early;
  };

  Status Parse(bool* moved);
  Status Begin(const FrameHead& head);
  Status BeginPayload(const FrameHead& head);
  Status BeginEarly(const FrameHead& head);
  void DropEarlyPayload();
  static Early* FirstAnnounced(Key* key);
  Status Announce(const FrameHead& head);
  Status AddEarly(Key* key, Early early);
  Status Finish();
  void Complete(Reception reception, const FrameHead& head);
  void AskFor(uint32_t key, Reception* reception);
  void Forget(uint32_t key);

  const Ready ready_;
  const Heard heard_;
  std::unordered_map<uint32_t, Key> keys_;
  uint64_t early_bytes_ = 0;
  int early_frames_ = 0;
  std::unique_ptr<Payload> payload_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // of what was read and is not parsed
};

}  // namespace tf_strategies::tcp

#endif  // OPS_TRANSPORT_TCP_INCOMING_H_

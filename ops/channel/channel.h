// Channel: carries whole tensors between two processes, each of which holds one end.
//
// A transfer has the same TransferId on both ends and happens when both have asked for it, in either order.
// The sender sends dtype and shape first. The receiver then allocates memory, so the bytes arrive in their
// final place. A progress thread moves the bytes. Callers only submit; a call also makes progress that is
// possible at once.
//
// Failure: the first cause ends the channel. Outstanding and later transfers fail with this cause, and the
// peer is told, if it is reachable. On one host the transport does not notice that the peer has died: a
// failure detector must call Fail. Cancelling one transfer, because its step was cancelled, is not a failure.
#ifndef OPS_CHANNEL_CHANNEL_H_
#define OPS_CHANNEL_CHANNEL_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ops/base/status.h"
#include "ops/channel/message.h"
#include "ops/channel/pairing.h"
#include "ops/transport/progress_thread.h"
#include "ops/transport/transport.h"

namespace tf_strategies {

struct ChannelStats {
  int64_t tensors_sent = 0;
  int64_t tensors_received = 0;
  int64_t outstanding = 0;  // transfers begun here that have not ended
  int64_t unclaimed = 0;    // tensors announced by the peer that nobody here has asked for
  TransportCounters wire;
};

class Channel : private ProgressThread::Work {
 public:
  using Done = std::function<void(const Status&)>;

  struct Request {
    TransferId id;
    std::string label;           // for messages: "pull 'dense/kernel'"
    double timeout_seconds = 0;  // how long the transfer may take; a longer one is a failure of the channel
    Done done;                   // called once, on any thread, not while a mutex is held; must not block
  };

  struct Outgoing : Request {
    TensorInfo info;
    const void* data = nullptr;        // [info.bytes], valid until done is called ...
    std::shared_ptr<void> keep_alive;  // ... and longer if need be: whatever owns data
  };

  struct Incoming : Request {
    // Returns the memory for the bytes of this tensor, and its owner; or an error, which ends only this
    // transfer. Called once, must not block.
    struct Place {
      void* data = nullptr;
      std::shared_ptr<void> keep_alive;
    };
    std::function<Status(const TensorInfo&, Place*)> place;
  };

  // names: the names of the two ends in messages: "worker 0 (10.0.0.2:2222)", "ps 1 (10.0.0.9:2222)". The
  // transport has two ranks.
  Channel(std::unique_ptr<Transport> transport, std::string my_name, std::string peer_name);
  ~Channel() override;

  // Fails outstanding transfers with kAborted, tells the peer and joins the progress thread. Must not be
  // called from a completion. May be called again.
  void Close();

  // The following functions are thread-safe.

  // Waits for the first message of the peer.
  Status WaitReady(double seconds);

  // Identifies one transfer on this end, for GiveUp, which may be called at any time.
  int64_t NewTicket() { return ++last_ticket_; }
  void Send(int64_t ticket, Outgoing outgoing);
  void Receive(int64_t ticket, Incoming incoming);

  // Cancels a transfer. If the peer has begun it, it runs to its end; if neither end has begun, it is
  // removed. Its memory is kept alive as long as needed.
  void GiveUp(int64_t ticket);

  void Fail(Status cause);
  Status status() const;  // OK, or why the channel has ended

  const std::string& peer_name() const { return peer_name_; }
  ChannelStats stats() const;
  std::string DescribeTransport() const { return transport_->Describe(); }

 private:
  using Clock = std::chrono::steady_clock;

  struct Transfer {
    int64_t ticket = 0;
    bool sends = false;
    bool moving = false;  // a send, or a reception whose bytes are on their way
    uint32_t payload = 0;
    Outgoing out;
    Incoming in;
    std::shared_ptr<void> keep_alive;  // of a reception: whatever owns the place of the bytes
    Clock::time_point deadline;
    const Request& request() const { return sends ? static_cast<const Request&>(out) : in; }
  };

  struct Command {
    std::shared_ptr<Transfer> begin;  // or null:
    int64_t give_up = 0;
  };

  void Submit(std::shared_ptr<Transfer> transfer);

  // Called by the progress thread. All of these except HasNews, and the functions below, need its mutex.
  bool Poll() override;
  bool HasNews() const override;
  int Moving() const override { return moving_; }
  int Outstanding() const override { return static_cast<int>(transfers_.size()); }
  bool Ended() const override { return ended_; }

  bool TakeCommands();
  void Begin(std::shared_ptr<Transfer> transfer);
  void BeginSend(Transfer* transfer);
  void BeginReceive(Transfer* transfer);
  void StopWaiting(int64_t ticket);
  void ListenForMessages();
  bool HandleMessage();
  void Handle(channel::Message message);
  void Pair(Transfer* transfer, const channel::Message& message);
  void Drop(const channel::Message& message);
  void DropPayload(uint32_t payload);
  void Tell(const channel::Message& message);
  void Finish(int64_t ticket, const Status& status);
  void SeeFailure(Status cause);
  void SeeWireFailure(const Status& status);
  void CheckForFailure();
  Status Overdue(const Transfer& transfer) const;
  void End(Status cause);

  // The transport may still access these after a transfer has failed. They are declared before it, so they
  // are freed after it.
  std::vector<std::shared_ptr<Transfer>> abandoned_;
  std::list<std::string> outbox_;
  std::vector<char> inbox_;
  const std::unique_ptr<Transport> transport_;
  const std::string my_name_, peer_name_;
  const int peer_;
  std::atomic<int64_t> last_ticket_{0};

  ProgressThread progress_;
  // Guarded by progress_.mutex(), as are the transport and what follows.
  bool greeted_ = false;
  std::map<int64_t, std::shared_ptr<Transfer>> transfers_;
  channel::Pairing pairing_;
  int moving_ = 0;       // of transfers_
  size_t dropping_ = 0;  // payloads that are taken in for nobody
  uint32_t next_payload_ = 0;
  bool message_came_ = false;
  size_t message_bytes_ = 0;
  Status failure_;
  bool peer_listens_ = true;
  bool ended_ = false;
  Clock::time_point next_check_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Command> commands_;  // guarded by mutex_, as is what follows
  Status verdict_;                 // what Fail said
  Status cause_;                   // why the channel has ended
  bool ready_ = false;
  ChannelStats stats_;

  std::once_flag closed_;
};

}  // namespace tf_strategies

#endif  // OPS_CHANNEL_CHANNEL_H_

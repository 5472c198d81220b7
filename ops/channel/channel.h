// Channel: carries whole tensors between two processes, each of which has one end.
//
// A transfer has the same TransferId on both ends. It begins when both ends have requested it, in either order.
// The sender sends dtype and shape first. The receiver then allocates memory, so the bytes arrive in their
// final place. A progress thread moves the bytes. Callers only submit; a call also makes the progress that is
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
  int64_t outstanding = 0;  // transfers that were requested here and have not ended
  int64_t unclaimed = 0;    // tensors that the peer has announced and no caller here has requested
  TransportCounters wire;
};

class Channel : private ProgressThread::Work {
 public:
  using Done = std::function<void(const Status&)>;

  struct Request {
    TransferId id;
    std::string label;           // for messages: "pull 'dense/kernel'"
    double timeout_seconds = 0;  // the limit for the transfer; the channel fails when it is exceeded
    Done done;                   // called once, on any thread, without a mutex; must not block
  };

  struct Outgoing : Request {
    TensorInfo info;
    const void* data = nullptr;        // [info.bytes] bytes, valid until done is called
    std::shared_ptr<void> keep_alive;  // the owner of data; the channel keeps it longer if necessary
  };

  struct Incoming : Request {
    // The memory for the bytes of a tensor, and its owner.
    struct Place {
      void* data = nullptr;
      std::shared_ptr<void> keep_alive;
    };
    // Allocates the memory. An error ends only this transfer. Called once; must not block.
    std::function<Status(const TensorInfo&, Place*)> place;
  };

  // transport: has two ranks.
  // my_name, peer_name: the names of the two ends, for messages: "worker 0 (10.0.0.2:2222)".
  Channel(std::unique_ptr<Transport> transport, std::string my_name, std::string peer_name);
  ~Channel() override;

  // Fails outstanding transfers with kAborted, sends the reason to the peer, and joins the progress thread. Must not
  // be called from a completion. May be called again.
  void Close();

  // The following functions are thread-safe.

  // Waits for the first message of the peer. Returns kDeadlineExceeded if it does not arrive in time.
  Status WaitReady(double seconds);

  // Returns a number that identifies one transfer on this end, for GiveUp.
  int64_t NewTicket() { return ++last_ticket_; }
  void Send(int64_t ticket, Outgoing outgoing);
  void Receive(int64_t ticket, Incoming incoming);

  // Cancels a transfer. It is removed, unless the peer has begun it; then it runs to its end. Its memory is kept alive
  // as long as necessary. May be called at any time.
  void GiveUp(int64_t ticket);

  // Ends the channel with this cause.
  void Fail(Status cause);

  // Returns OK, or the reason why the channel has ended.
  Status status() const;

  const std::string& peer_name() const { return peer_name_; }
  ChannelStats stats() const;
  std::string DescribeTransport() const { return transport_->Describe(); }

 private:
  using Clock = std::chrono::steady_clock;

  struct Transfer {
    int64_t ticket = 0;
    bool sends = false;
    bool moving = false;  // whether its bytes are being sent or received
    uint32_t payload = 0;
    Outgoing out;
    Incoming in;
    std::shared_ptr<void> keep_alive;  // the owner of the memory of a reception
    Clock::time_point deadline;
    const Request& request() const { return sends ? static_cast<const Request&>(out) : in; }
  };

  struct Command {
    std::shared_ptr<Transfer> begin;  // the transfer to begin, or null
    int64_t give_up = 0;              // if begin is null: the ticket of the transfer to cancel
  };

  void Submit(std::shared_ptr<Transfer> transfer);

  // The progress thread calls these functions. All of them except HasNews, and the functions below, need its mutex.
  bool Poll() override;
  bool HasNews() const override;
  int Moving() const override { return moving_; }
  int Outstanding() const override { return static_cast<int>(transfers_.size()); }
  bool Ended() const override { return ended_; }

  bool RunCommands();
  void Begin(std::shared_ptr<Transfer> transfer);
  void BeginSend(Transfer* transfer);
  void BeginReceive(Transfer* transfer);
  void CancelTransfer(int64_t ticket);
  void ReceiveNextMessage();
  bool HandleMessage();
  void Handle(channel::Message message);
  void Pair(Transfer* transfer, const channel::Message& message);
  void Drop(const channel::Message& message);
  void DropPayload(uint32_t payload);
  void SendMessage(const channel::Message& message);
  void Finish(int64_t ticket, const Status& status);
  void RecordFailure(Status cause);
  void RecordTransportFailure(const Status& status);
  void CheckForFailure();
  Status OverdueError(const Transfer& transfer) const;
  void End(Status cause);

  // The transport may access this memory after a transfer has failed. These members are declared before the transport,
  // so that they are freed after it.
  std::vector<std::shared_ptr<Transfer>> abandoned_;
  std::list<std::string> outbox_;
  std::vector<char> inbox_;
  const std::unique_ptr<Transport> transport_;
  const std::string my_name_, peer_name_;
  const int peer_;
  std::atomic<int64_t> last_ticket_{0};

  ProgressThread progress_;
  // The transport and the following members are guarded by progress_.mutex().
  bool hello_sent_ = false;
  std::map<int64_t, std::shared_ptr<Transfer>> transfers_;
  channel::Pairing pairing_;
  int moving_ = 0;       // the number of transfers_ that are moving
  size_t dropping_ = 0;  // the number of payloads that are received and discarded
  uint32_t next_payload_ = 0;
  bool message_arrived_ = false;
  size_t message_bytes_ = 0;
  Status failure_;
  bool peer_receives_ = true;
  bool ended_ = false;
  Clock::time_point next_check_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // The following members are guarded by mutex_.
  std::vector<Command> commands_;
  Status requested_failure_;  // the cause that was passed to Fail
  Status cause_;              // why the channel has ended
  bool ready_ = false;
  ChannelStats stats_;

  std::once_flag closed_;
};

}  // namespace tf_strategies

#endif  // OPS_CHANNEL_CHANNEL_H_

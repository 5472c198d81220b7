#include "ops/transport/in_process.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <utility>
#include <vector>

#include "ops/base/check.h"
#include "ops/transport/counters.h"

namespace tf_strategies {
namespace {

struct Message {
  int source = 0;
  Tag tag;
  const void* data = nullptr;
  size_t bytes = 0;
  std::vector<char> copy;  // holds the data of an eager message
  uint64_t receipt = 0;    // the sender's number of a rendezvous message; 0 for an eager message
};

bool SameKey(const Tag& a, const Tag& b) { return a.instance == b.instance && a.message == b.message; }

}  // namespace

class InProcessFabric {
 public:
  struct Inbox {
    std::mutex mutex;
    std::condition_variable changed;
    std::list<Message> messages;
    std::deque<uint64_t> receipts;  // the rendezvous messages of this rank that were received
    bool woken = false;
  };

  InProcessFabric(int size, size_t eager_bytes) : eager_bytes_(eager_bytes), inboxes_(size) {}

  int size() const { return static_cast<int>(inboxes_.size()); }
  size_t eager_bytes() const { return eager_bytes_; }
  Inbox& inbox(int rank) { return inboxes_[rank]; }

 private:
  const size_t eager_bytes_;
  std::deque<Inbox> inboxes_;
};

namespace {

class InProcessTransport final : public Transport {
 public:
  InProcessTransport(std::shared_ptr<InProcessFabric> fabric, int rank)
      : fabric_(std::move(fabric)), rank_(rank) {
    TFS_CHECK_GE(rank, 0);
    TFS_CHECK_LT(rank, fabric_->size());
  }
  ~InProcessTransport() override { Cancel(); }

  int rank() const override { return rank_; }
  int size() const override { return fabric_->size(); }

  void Send(int peer, Tag tag, const void* data, size_t bytes, SendDone done) override {
    Message message{rank_, tag, data, bytes, {}, 0};
    const bool eager = bytes <= fabric_->eager_bytes();
    if (eager) {
      const char* begin = static_cast<const char*>(data);
      message.copy.assign(begin, begin + bytes);
      message.data = message.copy.data();
    } else {
      message.receipt = ++last_receipt_;
      sends_.emplace_back(message.receipt, std::move(done));
    }
    counters_.Sent(bytes);
    auto& inbox = fabric_->inbox(peer);
    {
      std::lock_guard<std::mutex> lock(inbox.mutex);
      inbox.messages.push_back(std::move(message));
      inbox.woken = true;
    }
    inbox.changed.notify_all();
    if (eager) done(Status::Ok());
  }

  void Receive(int peer, Tag tag, void* data, size_t bytes, ReceiveDone done) override {
    receives_.push_back({peer, tag, data, bytes, std::move(done)});
  }

  bool Progress() override {
    bool moved = false;
    for (auto receive = receives_.begin(); receive != receives_.end();) {
      Message message;
      if (!Take(*receive, &message)) {
        ++receive;
        continue;
      }
      moved = true;
      Posted posted = std::move(*receive);
      receive = receives_.erase(receive);
      Complete(posted, message);
    }
    return AcceptReceipts() || moved;
  }

  bool Arm() override { return true; }

  void Wait(int timeout_ms) override {
    auto& inbox = fabric_->inbox(rank_);
    std::unique_lock<std::mutex> lock(inbox.mutex);
    inbox.changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return inbox.woken; });
    inbox.woken = false;
  }

  void Wake() override {
    auto& inbox = fabric_->inbox(rank_);
    {
      std::lock_guard<std::mutex> lock(inbox.mutex);
      inbox.woken = true;
    }
    inbox.changed.notify_all();
  }

  void Cancel() override {
    receives_.clear();
    sends_.clear();
    for (int peer = 0; peer < fabric_->size(); ++peer) {
      auto& inbox = fabric_->inbox(peer);
      std::lock_guard<std::mutex> lock(inbox.mutex);
      inbox.messages.remove_if([&](const Message& m) { return m.source == rank_ && m.receipt != 0; });
    }
  }

  std::string Describe() const override { return "in-process"; }
  TransportCounters counters() const override { return counters_.Read(); }

 private:
  struct Posted {
    int peer;
    Tag tag;
    void* data;
    size_t bytes;
    ReceiveDone done;
  };

  // Copies the data while the inbox is locked, because the sender may call Cancel and then free the memory.
  bool Take(const Posted& receive, Message* taken) {
    auto& inbox = fabric_->inbox(rank_);
    std::lock_guard<std::mutex> lock(inbox.mutex);
    for (auto m = inbox.messages.begin(); m != inbox.messages.end(); ++m) {
      if (m->source != receive.peer || !SameKey(m->tag, receive.tag)) continue;
      if (m->bytes <= receive.bytes && m->bytes > 0) std::memcpy(receive.data, m->data, m->bytes);
      *taken = std::move(*m);
      inbox.messages.erase(m);
      return true;
    }
    return false;
  }

  void Complete(const Posted& posted, const Message& message) {
    counters_.Received(message.bytes);
    if (message.receipt != 0) {
      auto& sender = fabric_->inbox(message.source);
      {
        std::lock_guard<std::mutex> lock(sender.mutex);
        sender.receipts.push_back(message.receipt);
        sender.woken = true;
      }
      sender.changed.notify_all();
    }
    const Received received{message.tag.signature, message.bytes};
    if (message.bytes > posted.bytes) {
      posted.done(Mismatch("received a message of " + std::to_string(message.bytes) + " bytes where " +
                           std::to_string(posted.bytes) + " were expected"),
                  received);
    } else {
      posted.done(Status::Ok(), received);
    }
  }

  bool AcceptReceipts() {
    std::deque<uint64_t> receipts;
    auto& inbox = fabric_->inbox(rank_);
    {
      std::lock_guard<std::mutex> lock(inbox.mutex);
      receipts.swap(inbox.receipts);
    }
    for (uint64_t receipt : receipts) {
      for (auto send = sends_.begin(); send != sends_.end(); ++send) {
        if (send->first != receipt) continue;
        SendDone done = std::move(send->second);
        sends_.erase(send);
        done(Status::Ok());
        break;
      }
    }
    return !receipts.empty();
  }

  const std::shared_ptr<InProcessFabric> fabric_;
  const int rank_;
  uint64_t last_receipt_ = 0;
  std::list<Posted> receives_;
  std::list<std::pair<uint64_t, SendDone>> sends_;
  WireCounters counters_;
};

}  // namespace

std::shared_ptr<InProcessFabric> MakeInProcessFabric(int size, size_t eager_bytes) {
  return std::make_shared<InProcessFabric>(size, eager_bytes);
}

std::unique_ptr<Transport> MakeInProcessTransport(std::shared_ptr<InProcessFabric> fabric, int rank) {
  return std::make_unique<InProcessTransport>(std::move(fabric), rank);
}

}  // namespace tf_strategies

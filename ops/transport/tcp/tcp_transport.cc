#include "ops/transport/tcp/tcp_transport.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

#include "ops/transport/counters.h"
#include "ops/transport/tcp/frame.h"
#include "ops/transport/tcp/incoming.h"
#include "ops/transport/tcp/outgoing.h"

namespace tf_strategies {
namespace {

using tcp::FrameHead;
using tcp::FrameKind;
using tcp::kEagerBytes;

constexpr std::chrono::seconds kFlushTime{2};
constexpr int kMostEvents = 64;
// A host that answers nothing for so long is lost. The control plane mostly knows before.
constexpr int kSilentMs = 30000;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

Status FromErrno(const std::string& what) { return Unavailable(what + ": " + std::strerror(errno)); }

// One connection.
class Peer {
 public:
  Peer(int rank, Descriptor socket)
      : rank_(rank),
        socket_(std::move(socket)),
        incoming_([this](uint32_t key, size_t bytes) { SayReady(key, bytes); },
                  [this](uint32_t key) { return Heard(key); }) {}

  int socket() const { return socket_.get(); }
  bool lost() const { return !lost_.ok(); }
  bool has_output() const { return !outgoing_.empty(); }
  bool blocked() const { return outgoing_.blocked(); }

  void Send(const Tag& tag, const void* data, size_t bytes, Transport::SendDone done) {
    if (lost()) return done(lost_);
    const uint32_t key = tcp::KeyOf(tag);
    FrameHead head;
    head.key = key;
    head.signature = tag.signature;
    head.bytes = bytes;
    const auto ready = ready_.find(key);
    const bool is_ready = ready != ready_.end();
    if (is_ready) {
      --ready_places_;
      if (--ready->second == 0) ready_.erase(ready);
    }
    if (bytes <= kEagerBytes) {
      head.kind = FrameKind::kEager;
    } else if (is_ready) {
      head.kind = FrameKind::kData;
    } else {
      head.kind = FrameKind::kAnnounce;
      outgoing_.Add(head, nullptr, nullptr);
      waiting_[key].push_back({head, data, std::move(done)});
      return;
    }
    outgoing_.Add(head, data, std::move(done));
  }

  void Receive(const Tag& tag, void* data, size_t bytes, Transport::ReceiveDone done) {
    const uint32_t key = tcp::KeyOf(tag);
    if (lost() && !incoming_.HasArrived(key)) return done(lost_, Received{});
    incoming_.Receive(key, data, bytes, std::move(done));
  }

  bool Write() {
    bool moved = false;
    if (broken_) return false;
    const Status status = outgoing_.Write(socket(), &moved);
    if (!status.ok()) {  // what the peer has sent before is still read
      broken_ = true;
      outgoing_.Fail(Broken(status));
    }
    return moved;
  }

  bool Read() {
    bool moved = false;
    const Status status = incoming_.Read(socket(), &moved);
    if (!status.ok()) Lose(Broken(status));
    return moved || lost();
  }

  void Clear() {
    incoming_.Clear();
    outgoing_.Clear();
    waiting_.clear();
  }

 private:
  struct Waiting {
    FrameHead head;
    const void* data;
    Transport::SendDone done;
  };

  void SayReady(uint32_t key, size_t bytes) {
    FrameHead head;
    head.kind = FrameKind::kReady;
    head.key = key;
    head.bytes = bytes;
    outgoing_.Add(head, nullptr, nullptr);
  }

  Status Heard(uint32_t key) {
    const auto found = waiting_.find(key);
    if (found == waiting_.end()) {
      if (ready_places_ == tcp::kMostEarlyFrames) {
        return ResourceExhausted(std::to_string(ready_places_) +
                                 " places were named for messages that nobody sends");
      }
      ++ready_places_;
      ++ready_[key];
      return Status::Ok();
    }
    Waiting waiting = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) waiting_.erase(found);
    waiting.head.kind = FrameKind::kData;
    outgoing_.Add(waiting.head, waiting.data, std::move(waiting.done));
    return Status::Ok();
  }

  Status Broken(const Status& status) const {
    return {status.code(), "the connection to rank " + std::to_string(rank_) + " broke: " + status.message()};
  }

  void Lose(const Status& status) {
    if (lost()) return;
    lost_ = status;
    incoming_.Fail(status);
    outgoing_.Fail(status);
    auto waiting = std::move(waiting_);
    waiting_.clear();
    for (auto& [key, sends] : waiting) {
      for (Waiting& send : sends) send.done(status);
    }
  }

  const int rank_;
  Descriptor socket_;
  tcp::Outgoing outgoing_;
  tcp::Incoming incoming_;
  std::unordered_map<uint32_t, std::deque<Waiting>> waiting_;  // long messages without a place
  std::unordered_map<uint32_t, int> ready_;                    // places without a message, by key
  int ready_places_ = 0;                                       // all of them
  bool broken_ = false;                                        // nothing can be sent
  Status lost_;
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(int rank, Descriptor events, Descriptor wake)
      : rank_(rank), events_(std::move(events)), wake_(std::move(wake)) {}

  ~TcpTransport() override {
    if (!cancelled_) Flush();
    Cancel();
  }

  Status Take(std::vector<int> sockets) {
    std::vector<Descriptor> owned;
    for (const int socket : sockets) owned.emplace_back(socket);
    peers_.resize(owned.size());
    watched_for_output_.assign(owned.size(), false);
    if (!Watch(EPOLL_CTL_ADD, wake_.get(), EPOLLIN, kWakeUp)) return FromErrno("epoll");
    for (size_t peer = 0; peer < owned.size(); ++peer) {
      const int socket = owned[peer].get();
      if (static_cast<int>(peer) == rank_ || socket < 0) continue;
      const int flags = fcntl(socket, F_GETFL);
      if (flags < 0 || fcntl(socket, F_SETFL, flags | O_NONBLOCK) < 0 ||
          !Watch(EPOLL_CTL_ADD, socket, EPOLLIN, static_cast<uint32_t>(peer))) {
        return FromErrno("the socket of rank " + std::to_string(peer));
      }
      const int on = 1, silent = kSilentMs;  // they have no meaning for sockets that are not TCP
      setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent, sizeof(silent));
      setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
      peers_[peer] = std::make_unique<Peer>(static_cast<int>(peer), std::move(owned[peer]));
    }
    return Status::Ok();
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }

  void Send(int peer, Tag tag, const void* data, size_t bytes, SendDone done) override {
    if (peers_[peer] == nullptr) return done(Unreached(peer));
    counters_.Sent(bytes);
    peers_[peer]->Send(tag, data, bytes, std::move(done));
  }

  void Receive(int peer, Tag tag, void* data, size_t bytes, ReceiveDone done) override {
    if (peers_[peer] == nullptr) return done(Unreached(peer), Received{});
    peers_[peer]->Receive(tag, data, bytes,
                          [this, done = std::move(done)](const Status& status, const Received& received) {
                            if (status.ok()) counters_.Received(received.bytes);
                            done(status, received);
                          });
  }

  bool Progress() override {
    if (cancelled_) {
      ForgetWake();
      return false;
    }
    bool moved = WriteAll(false);
    epoll_event events[kMostEvents];
    const int count = epoll_wait(events_.get(), events, kMostEvents, 0);
    for (int i = 0; i < count; ++i) {
      const uint32_t peer = events[i].data.u32;
      if (peer == kWakeUp) {
        ForgetWake();
        continue;
      }
      Peer& from = *peers_[peer];
      if ((events[i].events & EPOLLOUT) != 0) moved = from.Write() || moved;
      if ((events[i].events & ~uint32_t{EPOLLOUT}) != 0) moved = from.Read() || moved;
      if (from.lost()) Watch(EPOLL_CTL_DEL, from.socket(), 0, peer);
    }
    if (moved) WriteAll(true);
    return moved;
  }

  bool Arm() override {
    if (cancelled_) return true;
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (peers_[i] == nullptr || peers_[i]->lost()) continue;
      if (peers_[i]->has_output() && !peers_[i]->blocked()) return false;
      WatchOutput(static_cast<uint32_t>(i));
    }
    pollfd event{events_.get(), POLLIN, 0};
    return poll(&event, 1, 0) == 0;
  }

  void Wait(int timeout_ms) override {
    pollfd event{events_.get(), POLLIN, 0};
    poll(&event, 1, timeout_ms);
  }

  int EventFd() const override { return events_.get(); }

  void Wake() override {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  }

  void Cancel() override {
    if (std::exchange(cancelled_, true)) return;
    for (auto& peer : peers_) {
      if (peer == nullptr) continue;
      if (!peer->lost()) Watch(EPOLL_CTL_DEL, peer->socket(), 0, 0);
      peer->Clear();
    }
  }

  std::string Describe() const override { return "tcp"; }

  TransportCounters counters() const override { return counters_.Read(); }

 private:
  static constexpr uint32_t kWakeUp = UINT32_MAX;

  static Status Unreached(int peer) {
    return Unavailable("rank " + std::to_string(peer) + " has no connection");
  }

  bool Watch(int operation, int fd, uint32_t events, uint32_t number) {
    epoll_event event{};
    event.events = events;
    event.data.u32 = number;
    return epoll_ctl(events_.get(), operation, fd, &event) == 0;
  }

  void ForgetWake() {
    uint64_t unused;
    [[maybe_unused]] const ssize_t read_bytes = read(wake_.get(), &unused, sizeof(unused));
  }

  // Has the next Wait end when a socket that took less than there was takes more.
  void WatchOutput(uint32_t peer) {
    const bool wanted = peers_[peer]->blocked();
    if (wanted == watched_for_output_[peer]) return;
    watched_for_output_[peer] = wanted;
    Watch(EPOLL_CTL_MOD, peers_[peer]->socket(), wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, peer);
  }

  bool WriteAll(bool but_blocked) {
    bool moved = false;
    for (auto& peer : peers_) {
      if (peer == nullptr || !peer->has_output() || (but_blocked && peer->blocked())) continue;
      moved = peer->Write() || moved;
    }
    return moved;
  }

  // Lets what was sent leave before the connections end.
  void Flush() {
    const auto end = std::chrono::steady_clock::now() + kFlushTime;
    const auto left = [this] {
      for (auto& peer : peers_) {
        if (peer != nullptr && !peer->lost() && peer->has_output()) return true;
      }
      return false;
    };
    while (left() && std::chrono::steady_clock::now() < end) Progress();
  }

  const int rank_;
  const Descriptor events_;
  const Descriptor wake_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<bool> watched_for_output_;
  bool cancelled_ = false;
  WireCounters counters_;
};

}  // namespace

Status MakeTcpTransport(int rank, std::vector<int> sockets, std::unique_ptr<Transport>* transport) {
  Descriptor events(epoll_create1(EPOLL_CLOEXEC)), wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  const bool opened = events.get() >= 0 && wake.get() >= 0;
  const Status failed = opened ? Status::Ok() : FromErrno("epoll");
  auto made = std::make_unique<TcpTransport>(rank, std::move(events), std::move(wake));
  const Status taken = made->Take(std::move(sockets));
  TFS_RETURN_IF_ERROR(failed);
  TFS_RETURN_IF_ERROR(taken);
  *transport = std::move(made);
  return Status::Ok();
}

}  // namespace tf_strategies

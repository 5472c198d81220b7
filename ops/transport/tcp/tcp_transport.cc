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
#include <memory>
#include <string>
#include <utility>

#include "ops/transport/counters.h"
#include "ops/transport/tcp/connection.h"
#include "ops/transport/tcp/descriptor.h"
#include "ops/transport/tcp/peer.h"
#include "ops/transport/tcp/plain_stream.h"
#include "ops/transport/tcp/tls_context.h"
#include "ops/transport/tcp/tls_stream.h"

namespace tf_strategies {
namespace {

using tcp::Descriptor;
using tcp::Peer;

constexpr std::chrono::seconds kFlushTime{2};
constexpr int kMostEvents = 64;
// A host that answers nothing for so long is lost. The control plane mostly knows before.
constexpr int kSilentMs = 30000;

Status FromErrno(const std::string& what) { return Unavailable(what + ": " + std::strerror(errno)); }

class TcpTransport final : public Transport {
 public:
  TcpTransport(int rank, Descriptor events, Descriptor wake)
      : rank_(rank), events_(std::move(events)), wake_(std::move(wake)) {}

  ~TcpTransport() override {
    if (!cancelled_) Flush();
    Cancel();
  }

  Status Take(std::vector<int> sockets, const TcpTls& tls) {
    std::vector<Descriptor> owned;
    for (const int socket : sockets) owned.emplace_back(socket);
    if (!tls.folder.empty()) {
      TFS_RETURN_IF_ERROR(tcp::TlsContext::Open(tls.folder, &context_));
      established_ = false;
    }
    const auto deadline = std::chrono::steady_clock::now() + tls.handshake_time;
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
      std::unique_ptr<tcp::Stream> stream;
      if (context_ == nullptr) {
        stream = std::make_unique<tcp::PlainStream>(socket);
      } else {
        const bool accepts = static_cast<int>(peer) > rank_;
        TFS_RETURN_IF_ERROR(tcp::TlsStream::Open(context_, socket, accepts, deadline, &stream));
      }
      peers_[peer] =
          std::make_unique<Peer>(static_cast<int>(peer), std::move(owned[peer]), std::move(stream));
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
    bool moved = Establish();
    moved = WriteAll(false) || moved;
    moved = ReadBuffered() || moved;
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
      if ((events[i].events & ~uint32_t{EPOLLOUT}) != 0) moved = Read(peer) || moved;
    }
    if (moved) WriteAll(true);
    return moved;
  }

  bool Arm() override {
    if (cancelled_) return true;
    if (!established_ && !begun_) return false;
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (peers_[i] == nullptr || peers_[i]->lost()) continue;
      if (peers_[i]->has_input() || (peers_[i]->has_output() && !peers_[i]->blocked())) return false;
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

  std::string Describe() const override { return context_ == nullptr ? "tcp" : "tcp (TLS 1.3)"; }

  TransportCounters counters() const override { return counters_.Read(); }

  std::vector<ConnectionCounters> connections() const override {
    std::vector<ConnectionCounters> all;
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (peers_[i] == nullptr) continue;
      ConnectionCounters counters;
      counters.peer = static_cast<int>(i);
      counters.messages = peers_[i]->messages();
      if (tcp::ReadConnection(peers_[i]->socket(), &counters)) all.push_back(counters);
    }
    return all;
  }

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
    const bool wanted = peers_[peer]->waits_for_output();
    if (wanted == watched_for_output_[peer]) return;
    watched_for_output_[peer] = wanted;
    Watch(EPOLL_CTL_MOD, peers_[peer]->socket(), wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, peer);
  }

  bool Read(uint32_t peer) {
    Peer& from = *peers_[peer];
    if (from.lost()) return false;
    const bool moved = from.Read();
    if (from.lost()) Watch(EPOLL_CTL_DEL, from.socket(), 0, peer);
    return moved;
  }

  // Reads what streams hold, which the sockets do not announce.
  bool ReadBuffered() {
    bool moved = false;
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (peers_[i] != nullptr && peers_[i]->has_input()) moved = Read(static_cast<uint32_t>(i)) || moved;
    }
    return moved;
  }

  // Begins the handshakes, and gives up those that last too long.
  bool Establish() {
    if (established_) return false;
    bool moved = false;
    established_ = true;
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (peers_[i] == nullptr || peers_[i]->lost() || peers_[i]->established()) continue;
      if (!begun_) moved = Read(static_cast<uint32_t>(i)) || moved;
      if (peers_[i]->CheckDeadline()) {
        Watch(EPOLL_CTL_DEL, peers_[i]->socket(), 0, static_cast<uint32_t>(i));
        moved = true;
      }
      established_ = established_ && (peers_[i]->lost() || peers_[i]->established());
    }
    begun_ = true;
    return moved;
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
  std::shared_ptr<const tcp::TlsContext> context_;  // null without TLS
  bool begun_ = false;                              // the handshakes have
  bool established_ = true;                         // all handshakes have ended
  bool cancelled_ = false;
  WireCounters counters_;
};

}  // namespace

Status MakeTcpTransport(int rank, std::vector<int> sockets, const TcpTls& tls,
                        std::unique_ptr<Transport>* transport) {
  Descriptor events(epoll_create1(EPOLL_CLOEXEC)), wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  const bool opened = events.get() >= 0 && wake.get() >= 0;
  const Status failed = opened ? Status::Ok() : FromErrno("epoll");
  auto made = std::make_unique<TcpTransport>(rank, std::move(events), std::move(wake));
  const Status taken = made->Take(std::move(sockets), tls);
  TFS_RETURN_IF_ERROR(failed);
  TFS_RETURN_IF_ERROR(taken);
  *transport = std::move(made);
  return Status::Ok();
}

}  // namespace tf_strategies

#include "ops/transport/tcp/peer.h"

#include <string>
#include <utility>

namespace tf_strategies::tcp {

Peer::Peer(int rank, Descriptor socket, std::unique_ptr<Stream> stream)
    : rank_(rank),
      socket_(std::move(socket)),
      stream_(std::move(stream)),
      incoming_([this](uint32_t key, size_t bytes) { SayReady(key, bytes); },
                [this](uint32_t key) { return Heard(key); }) {}

void Peer::Send(const Tag& tag, const void* data, size_t bytes, Transport::SendDone done) {
  if (lost()) return done(lost_);
  messages_.fetch_add(1, std::memory_order_relaxed);
  const uint32_t key = KeyOf(tag);
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

void Peer::Receive(const Tag& tag, void* data, size_t bytes, Transport::ReceiveDone done) {
  const uint32_t key = KeyOf(tag);
  if (lost() && !incoming_.HasArrived(key)) return done(lost_, Received{});
  incoming_.Receive(key, data, bytes, std::move(done));
}

bool Peer::Write() {
  if (broken_ || lost()) return false;
  bool moved = false;
  const bool was_established = established();
  const Status status = outgoing_.Write(stream_.get(), &moved);
  if (!status.ok()) {  // what the peer has sent before is still read
    broken_ = true;
    outgoing_.Fail(Broken(status));
  }
  return moved || established() != was_established;
}

bool Peer::Read() {
  if (lost()) return false;
  bool moved = false;
  const bool was_established = established();
  const Status status = incoming_.Read(stream_.get(), &moved);
  if (!status.ok()) Lose(Broken(status));
  return moved || lost() || established() != was_established;
}

bool Peer::CheckDeadline() {
  if (lost()) return false;
  const Status status = stream_->CheckDeadline();
  if (!status.ok()) Lose(Broken(status));
  return !status.ok();
}

void Peer::Clear() {
  incoming_.Clear();
  outgoing_.Clear();
  waiting_.clear();
}

void Peer::SayReady(uint32_t key, size_t bytes) {
  FrameHead head;
  head.kind = FrameKind::kReady;
  head.key = key;
  head.bytes = bytes;
  outgoing_.Add(head, nullptr, nullptr);
}

Status Peer::Heard(uint32_t key) {
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) {
    if (ready_places_ == kMostEarlyFrames) {
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

Status Peer::Broken(const Status& status) const {
  return {status.code(), "the connection to rank " + std::to_string(rank_) + " broke: " + status.message()};
}

void Peer::Lose(const Status& status) {
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

}  // namespace tf_strategies::tcp

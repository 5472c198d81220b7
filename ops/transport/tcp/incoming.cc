#include "ops/transport/tcp/incoming.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

namespace tf_strategies::tcp {
namespace {

// What a read takes beside a payload that goes to its place: the more, the more is copied from here.
constexpr size_t kBufferBytes = 16 << 10;
constexpr int kMostReads = 8;  // before others have their turn

Status CheckAnnounced(const FrameHead& announced, const FrameHead& came) {
  if (announced.bytes == came.bytes) return Status::Ok();
  return InvalidArgument(std::to_string(announced.bytes) + " bytes were announced, and " +
                         std::to_string(came.bytes) + " came");
}

}  // namespace

Incoming::Incoming(Ready ready, Heard heard)
    : ready_(std::move(ready)), heard_(std::move(heard)), buffer_(kBufferBytes) {}

void Incoming::Receive(uint32_t key, void* data, size_t bytes, Transport::ReceiveDone done) {
  Reception reception{static_cast<char*>(data), bytes, std::move(done), false, {}};
  Key& at = keys_[key];
  if (at.early.empty()) {
    if (bytes > kEagerBytes) AskFor(key, &reception);
    at.posted.push_back(std::move(reception));
    return;
  }
  Early early = std::move(at.early.front());
  at.early.pop_front();
  --early_frames_;
  const FrameHead head = early.head;
  if (early.payload == nullptr) {
    reception.head = head;
    if (head.bytes <= bytes) {
      AskFor(key, &reception);
      at.announced.push_back(std::move(reception));
      return;
    }
    if (early.coming) DropEarlyPayload();
  } else {
    early_bytes_ -= head.bytes;
    if (0 < head.bytes && head.bytes <= bytes) std::memcpy(data, early.payload.get(), head.bytes);
  }
  Forget(key);
  Complete(std::move(reception), head);
}

// Nobody will ask for the payload that comes now.
void Incoming::DropEarlyPayload() {
  early_bytes_ -= payload_->head.bytes;
  payload_->early.reset();
  payload_->to = nullptr;
}

void Incoming::AskFor(uint32_t key, Reception* reception) {
  reception->ready_sent = true;
  ready_(key, reception->bytes);
}

Status Incoming::Read(Stream* stream, bool* moved) {
  for (int reads = 0; reads < kMostReads; ++reads) {
    TFS_RETURN_IF_ERROR(Parse(moved));
    // A payload goes where it belongs; what follows it into the buffer, which is empty or holds the start of a head.
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    const bool in_place = payload_ != nullptr && payload_->to != nullptr;
    iovec parts[2];
    int count = 0;
    if (in_place) parts[count++] = {payload_->to, payload_->left};
    parts[count++] = {buffer_.data() + end_, buffer_.size() - end_};
    size_t bytes = 0;
    TFS_RETURN_IF_ERROR(stream->Read(parts, count, &bytes));
    if (bytes == 0) return Status::Ok();
    *moved = true;
    const size_t wanted = count == 2 ? parts[0].iov_len + parts[1].iov_len : parts[0].iov_len;
    const bool drained = bytes < wanted;
    if (in_place) {
      const size_t direct = std::min(bytes, payload_->left);
      payload_->to += direct;
      payload_->left -= direct;
      bytes -= direct;
      end_ += bytes;
      if (payload_->left == 0) TFS_RETURN_IF_ERROR(Finish());
    } else {
      end_ += bytes;
    }
    if (drained) return Parse(moved);
  }
  return Parse(moved);
}

// Takes in all that the buffer holds.
Status Incoming::Parse(bool* moved) {
  while (begin_ < end_ || (payload_ != nullptr && payload_->left == 0)) {
    if (payload_ != nullptr) {
      const size_t bytes = std::min(payload_->left, end_ - begin_);
      if (payload_->to != nullptr) {
        std::memcpy(payload_->to, buffer_.data() + begin_, bytes);
        payload_->to += bytes;
      }
      begin_ += bytes;
      payload_->left -= bytes;
      if (payload_->left > 0) return Status::Ok();
      *moved = true;
      TFS_RETURN_IF_ERROR(Finish());
      continue;
    }
    if (end_ - begin_ < sizeof(FrameHead)) return Status::Ok();
    FrameHead head;
    std::memcpy(&head, buffer_.data() + begin_, sizeof(head));
    begin_ += sizeof(head);
    *moved = true;
    TFS_RETURN_IF_ERROR(Check(head));
    TFS_RETURN_IF_ERROR(Begin(head));
  }
  return Status::Ok();
}

Status Incoming::Begin(const FrameHead& head) {
  if (HasPayload(head.kind)) return BeginPayload(head);
  return head.kind == FrameKind::kReady ? heard_(head.key) : Announce(head);
}

Status Incoming::AddEarly(Key* key, Early early) {
  if (early_frames_ == kMostEarlyFrames) {
    return ResourceExhausted(std::to_string(early_frames_) + " messages came that nobody has asked for");
  }
  ++early_frames_;
  key->early.push_back(std::move(early));
  return Status::Ok();
}

Status Incoming::Announce(const FrameHead& head) {
  Key& at = keys_[head.key];
  if (at.posted.empty()) return AddEarly(&at, {head, nullptr});
  Reception reception = std::move(at.posted.front());
  at.posted.pop_front();
  if (head.bytes > reception.bytes) {
    if (reception.ready_sent) ++at.dropped;
    Forget(head.key);
    Complete(std::move(reception), head);
    return Status::Ok();
  }
  reception.head = head;
  if (!reception.ready_sent) AskFor(head.key, &reception);
  at.announced.push_back(std::move(reception));
  return Status::Ok();
}

Status Incoming::BeginPayload(const FrameHead& head) {
  auto payload = std::make_unique<Payload>();
  payload->head = head;
  payload->left = head.bytes;
  Key& at = keys_[head.key];
  const bool was_announced = head.kind == FrameKind::kData && !at.announced.empty();
  if (head.kind == FrameKind::kData && at.dropped > 0) {
    --at.dropped;
    payload_ = std::move(payload);
    Forget(head.key);
    return Status::Ok();
  }
  if (was_announced) TFS_RETURN_IF_ERROR(CheckAnnounced(at.announced.front().head, head));
  std::list<Reception>& receptions = was_announced ? at.announced : at.posted;
  if (receptions.empty() || (!was_announced && !at.early.empty())) return BeginEarly(head);
  Reception reception = std::move(receptions.front());
  receptions.pop_front();
  Forget(head.key);
  if (head.bytes > reception.bytes) {  // known now, and not when the last byte has come
    payload_ = std::move(payload);
    Complete(std::move(reception), head);
    return Status::Ok();
  }
  payload->to = reception.data;
  payload->reception = std::move(reception);
  payload_ = std::move(payload);
  return Status::Ok();
}

Status Incoming::BeginEarly(const FrameHead& head) {
  Early* const announced = head.kind == FrameKind::kData ? FirstAnnounced(&keys_[head.key]) : nullptr;
  if (announced != nullptr) TFS_RETURN_IF_ERROR(CheckAnnounced(announced->head, head));
  if (head.bytes > kMostEarlyBytes - early_bytes_) {
    return ResourceExhausted(std::to_string(early_bytes_ + head.bytes) +
                             " bytes of messages came that nobody has asked for");
  }
  auto payload = std::make_unique<Payload>();
  payload->head = head;
  payload->left = head.bytes;
  payload->early.reset(new (std::nothrow) char[std::max<size_t>(head.bytes, 1)]);
  if (payload->early == nullptr) return ResourceExhausted("no memory is left for a message that came early");
  payload->to = payload->early.get();
  if (announced != nullptr) announced->coming = true;
  early_bytes_ += head.bytes;
  payload_ = std::move(payload);
  return Status::Ok();
}

// The first message that was announced, and whose payload has not come; null if there is none.
Incoming::Early* Incoming::FirstAnnounced(Key* key) {
  for (Early& early : key->early) {
    if (early.payload == nullptr) return &early;
  }
  return nullptr;
}

// Hands over the payload, which is complete.
Status Incoming::Finish() {
  const std::unique_ptr<Payload> payload = std::move(payload_);
  if (payload->early == nullptr) {
    if (payload->reception.done) Complete(std::move(payload->reception), payload->head);
    return Status::Ok();
  }
  // A reception may have been posted since the payload began.
  Key& at = keys_[payload->head.key];
  const bool was_announced = payload->head.kind == FrameKind::kData && !at.announced.empty();
  std::list<Reception>& receptions = was_announced ? at.announced : at.posted;
  if (receptions.empty()) {
    Early* const announced = payload->head.kind == FrameKind::kData ? FirstAnnounced(&at) : nullptr;
    if (announced != nullptr) {
      announced->payload = std::move(payload->early);
      announced->coming = false;
      return Status::Ok();
    }
    return AddEarly(&at, {payload->head, std::move(payload->early)});
  }
  Reception reception = std::move(receptions.front());
  receptions.pop_front();
  const uint64_t bytes = payload->head.bytes;
  early_bytes_ -= bytes;
  if (0 < bytes && bytes <= reception.bytes) std::memcpy(reception.data, payload->early.get(), bytes);
  Forget(payload->head.key);
  Complete(std::move(reception), payload->head);
  return Status::Ok();
}

void Incoming::Complete(Reception reception, const FrameHead& head) {
  const Received received{head.signature, static_cast<size_t>(head.bytes)};
  if (head.bytes <= reception.bytes) return reception.done(Status::Ok(), received);
  reception.done(Mismatch("a message of " + std::to_string(head.bytes) + " bytes came for a place of " +
                          std::to_string(reception.bytes)),
                 received);
}

void Incoming::Forget(uint32_t key) {
  const auto found = keys_.find(key);
  if (found != keys_.end() && found->second.empty()) keys_.erase(found);
}

bool Incoming::HasArrived(uint32_t key) const {
  const auto found = keys_.find(key);
  return found != keys_.end() && !found->second.early.empty() &&
         found->second.early.front().payload != nullptr;
}

void Incoming::Fail(const Status& status) {
  std::vector<Reception> failed;
  if (payload_ != nullptr && payload_->reception.done) failed.push_back(std::move(payload_->reception));
  payload_.reset();
  for (auto& [key, at] : keys_) {
    for (auto* receptions : {&at.announced, &at.posted}) {
      for (Reception& reception : *receptions) failed.push_back(std::move(reception));
      receptions->clear();
    }
  }
  for (Reception& reception : failed) reception.done(status, Received{});
}

void Incoming::Clear() {
  payload_.reset();
  keys_.clear();
}

}  // namespace tf_strategies::tcp

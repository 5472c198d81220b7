// The transfers of a channel. A transfer begins with a request on this end or a message from the peer. It ends when
// its bytes have moved.

#include <cstring>

#include "ops/channel/channel.h"
#include "ops/channel/huge_pages.h"

namespace tf_strategies {
namespace {

using channel::Message;
using channel::MessageKind;

// The limits for announced tensors that wait for a reception, and for the bytes in their messages.
constexpr size_t kMostUnclaimed = 1 << 16;
constexpr size_t kMostUnclaimedBytes = size_t{64} << 20;
// The tag of messages. Each payload in flight has its own tag, too.
constexpr Tag kMessageTag{0, 0, 0};

Tag PayloadTag(uint32_t payload) {
  static_assert(channel::kPayloads >> kInstanceBits < 1 << kMessageBits, "a tag can represent all payloads");
  return {payload & ((1u << kInstanceBits) - 1), 1 + (payload >> kInstanceBits), 0};
}

}  // namespace

bool Channel::RunCommands() {
  std::vector<Command> commands;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    commands.swap(commands_);
  }
  for (Command& command : commands) {
    if (command.begin != nullptr) {
      Begin(std::move(command.begin));
    } else {
      CancelTransfer(command.give_up);
    }
  }
  return !commands.empty();
}

void Channel::Begin(std::shared_ptr<Transfer> transfer) {
  Transfer* const begun = transfer.get();
  transfers_[begun->ticket] = std::move(transfer);
  if (begun->sends) {
    BeginSend(begun);
  } else {
    BeginReceive(begun);
  }
}

void Channel::BeginSend(Transfer* transfer) {
  const Outgoing& out = transfer->out;
  const int64_t ticket = transfer->ticket;
  Message message;
  message.kind = MessageKind::kTensor;
  message.id = out.id;
  message.info = out.info;
  message.carries_bytes = out.info.bytes <= channel::kInlineBytes;
  if (message.carries_bytes) {
    message.body.assign(static_cast<const char*>(out.data), out.info.bytes);
    SendMessage(message);
    return Finish(ticket, Status::Ok());
  }
  transfer->moving = true;
  ++moving_;
  transfer->payload = message.payload = next_payload_;
  next_payload_ = (next_payload_ + 1) % channel::kPayloads;
  SendMessage(message);
  transport_->Send(peer_, PayloadTag(transfer->payload), out.data, out.info.bytes,
                   [this, ticket](const Status& sent) {
                     if (sent.ok()) return Finish(ticket, sent);
                     RecordTransportFailure(sent);
                   });
}

void Channel::BeginReceive(Transfer* transfer) {
  const auto message = pairing_.Expect(transfer->in.id, transfer->ticket);
  if (message.has_value()) Pair(transfer, *message);
}

void Channel::CancelTransfer(int64_t ticket) {
  const auto found = transfers_.find(ticket);
  if (found == transfers_.end()) return;
  Transfer& transfer = *found->second;
  if (transfer.sends) {
    Message message;
    message.kind = MessageKind::kCancel;
    message.payload = transfer.payload;
    SendMessage(message);
  } else if (!transfer.moving) {
    pairing_.GiveUp(transfer.in.id, ticket);
    Finish(ticket, Cancelled(transfer.in.label + " was cancelled"));
  }
}

void Channel::ReceiveNextMessage() {
  transport_->Receive(peer_, kMessageTag, inbox_.data(), inbox_.size(),
                      [this](const Status& received, const Received& what) {
                        if (!received.ok()) return RecordTransportFailure(received);
                        message_arrived_ = true;
                        message_bytes_ = what.bytes;
                      });
}

// The loop is necessary because the next message may arrive within the call that starts its reception.
bool Channel::HandleMessage() {
  bool any = false;
  while (message_arrived_ && failure_.ok()) {
    any = true;
    message_arrived_ = false;
    Message message;
    const Status decoded = channel::Decode(inbox_.data(), message_bytes_, &message);
    ReceiveNextMessage();
    if (!decoded.ok()) {
      RecordFailure(decoded);
    } else {
      Handle(std::move(message));
    }
  }
  return any;
}

void Channel::Handle(Message message) {
  switch (message.kind) {
    case MessageKind::kHello: {
      std::lock_guard<std::mutex> lock(mutex_);
      ready_ = true;
      changed_.notify_all();
      return;
    }
    case MessageKind::kTensor: {
      const auto ticket = pairing_.Announce(&message, Clock::now());
      if (ticket.has_value()) return Pair(transfers_.at(*ticket).get(), message);
      if (pairing_.announced() > kMostUnclaimed || pairing_.announced_bytes() > kMostUnclaimedBytes) {
        RecordFailure(Mismatch(std::to_string(pairing_.announced()) + " tensors with " +
                               std::to_string(pairing_.announced_bytes()) +
                               " bytes have arrived that no operation receives"));
      }
      return;
    }
    case MessageKind::kCancel:
      if (pairing_.Cancel(message.payload)) DropPayload(message.payload);
      return;
    case MessageKind::kEnd:
      peer_receives_ = false;
      return RecordFailure(Status(message.code, peer_name_ + " ended it: " + message.body));
  }
}

void Channel::Pair(Transfer* transfer, const Message& message) {
  const int64_t ticket = transfer->ticket;
  const auto stale = pairing_.TakeStale(message.id.key, message.id.step, Clock::now());
  for (const Message& old : stale) Drop(old);
  Incoming::Place place;
  const Status placed = transfer->in.place(message.info, &place);
  if (!placed.ok()) {
    Drop(message);
    return Finish(ticket, placed);
  }
  if (message.carries_bytes) {
    if (!message.body.empty()) std::memcpy(place.data, message.body.data(), message.body.size());
    return Finish(ticket, Status::Ok());
  }
  transfer->moving = true;
  ++moving_;
  transfer->keep_alive = std::move(place.keep_alive);
  const size_t expected = message.info.bytes;
  channel::PreferHugePages(place.data, expected);
  transport_->Receive(peer_, PayloadTag(message.payload), place.data, expected,
                      [this, ticket, expected](const Status& received, const Received& what) {
                        if (!received.ok()) return RecordTransportFailure(received);
                        if (what.bytes == expected) return Finish(ticket, received);
                        RecordFailure(Mismatch("a tensor of " + std::to_string(expected) +
                                               " bytes arrived with " + std::to_string(what.bytes)));
                      });
}

void Channel::Drop(const Message& message) {
  if (!message.carries_bytes) DropPayload(message.payload);
}

// Receives a payload and discards it, so that the send completes on the other end. The number of such receptions is
// limited, because a faulty peer may announce and cancel tensors without ever sending their payloads.
void Channel::DropPayload(uint32_t payload) {
  if (dropping_ == kMostUnclaimed) {
    return RecordFailure(
        Mismatch(std::to_string(dropping_) + " tensors were announced and have not arrived"));
  }
  ++dropping_;
  transport_->Receive(peer_, PayloadTag(payload), inbox_.data(), 0,
                      [this](const Status& received, const Received&) {
                        --dropping_;
                        if (!received.ok() && received.code() != Code::kMismatch)
                          RecordTransportFailure(received);
                      });
}

void Channel::SendMessage(const Message& message) {
  const auto encoded = outbox_.insert(outbox_.end(), channel::Encode(message));
  transport_->Send(peer_, kMessageTag, encoded->data(), encoded->size(), [this, encoded](const Status& sent) {
    if (!sent.ok()) return RecordTransportFailure(sent);
    outbox_.erase(encoded);
  });
}

void Channel::Finish(int64_t ticket, const Status& status) {
  const auto found = transfers_.find(ticket);
  if (found == transfers_.end()) return;
  const auto transfer = std::move(found->second);
  transfers_.erase(found);
  if (transfer->moving) --moving_;
  if (status.ok()) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++(transfer->sends ? stats_.tensors_sent : stats_.tensors_received);
  }
  auto& request = transfer->sends ? static_cast<Request&>(transfer->out) : transfer->in;
  progress_.Complete(std::move(request.done), status);
}

}  // namespace tf_strategies

// The transfers of a channel. A transfer begins with a submission on this end or a message from the peer, and
// ends when its bytes have moved.

#include <cstring>

#include "ops/channel/channel.h"
#include "ops/channel/huge_pages.h"

namespace tf_strategies {
namespace {

using channel::Message;
using channel::MessageKind;

// Limits of tensors that wait for a reception, and of the bytes that came with them.
constexpr size_t kMostUnclaimed = 1 << 16;
constexpr size_t kMostUnclaimedBytes = size_t{64} << 20;
// Messages have a tag of their own; so has each payload in flight.
constexpr Tag kMessageTag{0, 0, 0};

Tag PayloadTag(uint32_t payload) {
  static_assert(channel::kPayloads >> kInstanceBits < 1 << kMessageBits, "the tag has room for all");
  return {payload & ((1u << kInstanceBits) - 1), 1 + (payload >> kInstanceBits), 0};
}

}  // namespace

bool Channel::TakeCommands() {
  std::vector<Command> commands;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    commands.swap(commands_);
  }
  for (Command& command : commands) {
    if (command.begin != nullptr) {
      Begin(std::move(command.begin));
    } else {
      StopWaiting(command.give_up);
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
    Tell(message);
    return Finish(ticket, Status::Ok());
  }
  transfer->moving = true;
  ++moving_;
  transfer->payload = message.payload = next_payload_;
  next_payload_ = (next_payload_ + 1) % channel::kPayloads;
  Tell(message);
  transport_->Send(peer_, PayloadTag(transfer->payload), out.data, out.info.bytes,
                   [this, ticket](const Status& sent) {
                     if (sent.ok()) return Finish(ticket, sent);
                     SeeWireFailure(sent);
                   });
}

void Channel::BeginReceive(Transfer* transfer) {
  const auto message = pairing_.Expect(transfer->in.id, transfer->ticket);
  if (message.has_value()) Pair(transfer, *message);
}

void Channel::StopWaiting(int64_t ticket) {
  const auto found = transfers_.find(ticket);
  if (found == transfers_.end()) return;
  Transfer& transfer = *found->second;
  if (transfer.sends) {
    Message message;
    message.kind = MessageKind::kCancel;
    message.payload = transfer.payload;
    Tell(message);
  } else if (!transfer.moving) {
    pairing_.GiveUp(transfer.in.id, ticket);
    Finish(ticket, Cancelled(transfer.in.label + " was cancelled"));
  }
}

void Channel::ListenForMessages() {
  transport_->Receive(peer_, kMessageTag, inbox_.data(), inbox_.size(),
                      [this](const Status& received, const Received& what) {
                        if (!received.ok()) return SeeWireFailure(received);
                        message_came_ = true;
                        message_bytes_ = what.bytes;
                      });
}

// Handles one message at a time, because the next may complete within the call that posts its reception.
bool Channel::HandleMessage() {
  bool any = false;
  while (message_came_ && failure_.ok()) {
    any = true;
    message_came_ = false;
    Message message;
    const Status decoded = channel::Decode(inbox_.data(), message_bytes_, &message);
    ListenForMessages();
    if (!decoded.ok()) {
      SeeFailure(decoded);
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
        SeeFailure(Mismatch(std::to_string(pairing_.announced()) + " tensors with " +
                            std::to_string(pairing_.announced_bytes()) +
                            " bytes have arrived that no operation receives"));
      }
      return;
    }
    case MessageKind::kCancel:
      if (pairing_.Cancel(message.payload)) DropPayload(message.payload);
      return;
    case MessageKind::kEnd:
      peer_listens_ = false;
      return SeeFailure(Status(message.code, peer_name_ + " ended it: " + message.body));
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
                        if (!received.ok()) return SeeWireFailure(received);
                        if (what.bytes == expected) return Finish(ticket, received);
                        SeeFailure(Mismatch("a tensor of " + std::to_string(expected) + " bytes came with " +
                                            std::to_string(what.bytes)));
                      });
}

void Channel::Drop(const Message& message) {
  if (!message.carries_bytes) DropPayload(message.payload);
}

// Takes the payload in with no room for it, which ends the sender's part as if it had been read.
// A peer that announces and cancels, and sends no payload, would have one wait for each.
void Channel::DropPayload(uint32_t payload) {
  if (dropping_ == kMostUnclaimed) {
    return SeeFailure(Mismatch(std::to_string(dropping_) + " tensors were announced and have not come"));
  }
  ++dropping_;
  transport_->Receive(peer_, PayloadTag(payload), inbox_.data(), 0,
                      [this](const Status& received, const Received&) {
                        --dropping_;
                        if (!received.ok() && received.code() != Code::kMismatch) SeeWireFailure(received);
                      });
}

void Channel::Tell(const Message& message) {
  const auto encoded = outbox_.insert(outbox_.end(), channel::Encode(message));
  transport_->Send(peer_, kMessageTag, encoded->data(), encoded->size(), [this, encoded](const Status& sent) {
    if (!sent.ok()) return SeeWireFailure(sent);
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

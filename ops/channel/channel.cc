#include "ops/channel/channel.h"

#include <algorithm>
#include <cstring>

#include "ops/base/check.h"
#include "ops/channel/huge_pages.h"

namespace tf_strategies {
namespace {

using channel::Message;
using channel::MessageKind;

// As the engine of a communicator: where processes outnumber cores, polling takes time from the peer.
constexpr std::chrono::microseconds kSpin{5};
constexpr int kSleepMs = 50;
constexpr int kIdleSleepMs = 1000;
constexpr std::chrono::milliseconds kCheckEvery{20};
constexpr size_t kMostUnclaimed = 1 << 16;  // tensors that wait for a reception
constexpr std::chrono::milliseconds kFarewell{
    100};  // in which a peer that listens hears why the channel ends

// Messages have a tag of their own; so has each payload in flight.
constexpr Tag kMessageTag{0, 0, 0};

Tag PayloadTag(uint32_t payload) {
  static_assert(channel::kPayloads >> kInstanceBits < 1 << kMessageBits, "the tag has room for all");
  return {payload & ((1u << kInstanceBits) - 1), 1 + (payload >> kInstanceBits), 0};
}

std::string Seconds(double seconds) {
  std::string text = std::to_string(seconds);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

}  // namespace

Channel::Channel(std::unique_ptr<Transport> transport, std::string my_name, std::string peer_name)
    : inbox_(channel::MostMessageBytes()),
      transport_(std::move(transport)),
      my_name_(std::move(my_name)),
      peer_name_(std::move(peer_name)),
      peer_(1 - transport_->rank()) {
  TFS_CHECK_EQ(transport_->size(), 2);
  thread_ = std::thread([this] { Run(); });
}

Channel::~Channel() { Close(); }

void Channel::Close() {
  std::call_once(closed_, [this] {
    Fail(Aborted("it was closed"));
    thread_.join();
  });
}

Status Channel::WaitReady(double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return ready_ || !cause_.ok(); });
  if (!cause_.ok()) return cause_;
  if (ready_) return Status::Ok();
  return DeadlineExceeded(
      my_name_ + " heard nothing from " + peer_name_ + " in " + Seconds(seconds) +
      " over its transport, though TensorFlow reaches it: are other ports than those of TF_CONFIG"
      " closed between the hosts, or is shared memory forbidden? Try transport='tcp'");
}

void Channel::Send(int64_t ticket, Outgoing outgoing) {
  auto transfer = std::make_shared<Transfer>();
  transfer->ticket = ticket;
  transfer->sends = true;
  transfer->out = std::move(outgoing);
  Submit(std::move(transfer));
}

void Channel::Receive(int64_t ticket, Incoming incoming) {
  auto transfer = std::make_shared<Transfer>();
  transfer->ticket = ticket;
  transfer->in = std::move(incoming);
  Submit(std::move(transfer));
}

void Channel::Submit(std::shared_ptr<Transfer> transfer) {
  const double timeout = std::min(transfer->request().timeout_seconds, 1e9);
  transfer->deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout));
  Status refusal;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    refusal = cause_;
    if (refusal.ok()) commands_.push_back({transfer, 0});
  }
  if (!refusal.ok()) return transfer->request().done(refusal);
  PollOnce();
}

void Channel::GiveUp(int64_t ticket) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!cause_.ok()) return;
    commands_.push_back({nullptr, ticket});
  }
  PollOnce();
}

// Does on the caller's thread what can be done at once. What then needs the progress thread wakes it.
void Channel::PollOnce() {
  std::unique_lock<std::mutex> engine(engine_, std::try_to_lock);
  bool needs_progress = true;
  if (engine.owns_lock()) {
    if (!ended_) Poll();
    needs_progress = ended_ || moving_ > 0;
    Deliver(&engine);
  }
  if (needs_progress && sleeping_.load()) transport_->Wake();
}

void Channel::Fail(Status cause) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (verdict_.ok()) verdict_ = std::move(cause);
  }
  transport_->Wake();
}

Status Channel::status() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return cause_;
}

ChannelStats Channel::stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  ChannelStats stats = stats_;
  stats.wire = transport_->counters();
  return stats;
}

void Channel::Run() {
  {
    std::lock_guard<std::mutex> engine(engine_);
    ListenForMessages();
    Tell({});
  }
  auto last_event = Clock::now();
  for (;;) {
    std::unique_lock<std::mutex> engine(engine_);
    const bool moved = Poll();
    if (ended_) return Deliver(&engine);
    if (moved) {
      last_event = Clock::now();
      Deliver(&engine);
    } else if (transfers_.empty() || Clock::now() - last_event > kSpin) {
      Sleep(&engine);
    } else {
      engine.unlock();
      std::this_thread::yield();
    }
  }
}

// Does what can be done without waiting. Returns whether anything happened.
bool Channel::Poll() {
  bool moved = TakeCommands();
  moved = transport_->Progress() || moved;
  moved = HandleMessage() || moved;
  CheckForFailure();
  return moved || !completed_.empty();
}

// Tells the callers, who may submit again from within: not while a mutex is held.
void Channel::Deliver(std::unique_lock<std::mutex>* engine) {
  std::vector<std::pair<Done, Status>> completed;
  completed.swap(completed_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.outstanding = static_cast<int64_t>(transfers_.size());
    stats_.unclaimed = static_cast<int64_t>(pairing_.announced());
  }
  engine->unlock();
  for (auto& [done, status] : completed) done(status);
}

void Channel::Sleep(std::unique_lock<std::mutex>* engine) {
  const int longest = transfers_.empty() ? kIdleSleepMs : kSleepMs;
  sleeping_.store(true);
  bool idle;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    idle = commands_.empty() && verdict_.ok();
  }
  idle = idle && transport_->Arm();
  engine->unlock();
  if (idle) transport_->Wait(longest);
  sleeping_.store(false);
}

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
    Finish(ticket, Cancelled(transfer.in.label + " was given up"));
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

// One at a time: the next may complete within the call that listens for it.
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
      if (pairing_.announced() > kMostUnclaimed) {
        SeeFailure(Mismatch("more than " + std::to_string(kMostUnclaimed) +
                            " tensors have come for which there is no reception"));
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
void Channel::DropPayload(uint32_t payload) {
  transport_->Receive(peer_, PayloadTag(payload), inbox_.data(), 0,
                      [this](const Status& received, const Received&) {
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
  completed_.emplace_back(std::move(request.done), status);
}

void Channel::SeeFailure(Status cause) {
  if (failure_.ok()) failure_ = std::move(cause);
}

void Channel::SeeWireFailure(const Status& status) {
  if (status.code() == Code::kMismatch) return SeeFailure(status);
  SeeFailure({status.code(), peer_name_ + " is out of reach; has it died? (" + status.message() + ")"});
}

// Ends the channel when Fail was called, the wire failed, or a transfer is overdue.
void Channel::CheckForFailure() {
  if (ended_) return;
  const auto now = Clock::now();
  if (failure_.ok() && now >= next_check_) {
    next_check_ = now + kCheckEvery;
    for (const auto& [ticket, transfer] : transfers_) {
      if (now > transfer->deadline) SeeFailure(Overdue(*transfer));
    }
  }
  Status verdict;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    verdict = verdict_;
  }
  if (!verdict.ok()) return End(verdict);
  if (!failure_.ok()) return End(failure_);
}

Status Channel::Overdue(const Transfer& transfer) const {
  const Request& request = transfer.request();
  return DeadlineExceeded(request.label + " waited " + Seconds(request.timeout_seconds) + " on " + my_name_ +
                          (transfer.sends ? " for the other end to take its tensor in"
                                          : " for the other end to send its tensor") +
                          "; raise the timeout if a step may take longer");
}

void Channel::End(Status cause) {
  ended_ = true;
  const Status named(cause.code(), "the channel between " + my_name_ + " and " + peer_name_ +
                                       " has ended: " + cause.message());
  if (peer_listens_) {
    failure_ = Status::Ok();  // from here on: of the farewell
    Message farewell;
    farewell.kind = MessageKind::kEnd;
    farewell.code = cause.code();
    farewell.body = cause.message();
    Tell(farewell);
    const auto latest = Clock::now() + kFarewell;
    while (!outbox_.empty() && failure_.ok() && Clock::now() < latest) transport_->Progress();
  }
  std::vector<Command> commands;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    cause_ = named;
    commands.swap(commands_);
    changed_.notify_all();
  }
  transport_->Cancel();
  for (Command& command : commands) {
    if (command.begin != nullptr) transfers_[command.begin->ticket] = std::move(command.begin);
  }
  for (auto& [ticket, transfer] : transfers_) {
    auto& request = transfer->sends ? static_cast<Request&>(transfer->out) : transfer->in;
    completed_.emplace_back(std::move(request.done), named);
    transfer->in.place = nullptr;
    abandoned_.push_back(std::move(transfer));
  }
  transfers_.clear();
}

}  // namespace tf_strategies

#include "ops/channel/channel.h"

#include <algorithm>

#include "ops/base/check.h"

namespace tf_strategies {
namespace {

using channel::Message;
using channel::MessageKind;

constexpr int kIdleSleepMs = 1000;
constexpr std::chrono::milliseconds kCheckEvery{20};
// The time to send the peer the reason why the channel ends.
constexpr std::chrono::milliseconds kLastMessageTime{100};

std::string Seconds(double seconds) {
  std::string text = std::to_string(seconds);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

ProgressThread::Options ProgressOptions() {
  ProgressThread::Options options;
  options.idle_sleep_ms = kIdleSleepMs;
  return options;
}

}  // namespace

Channel::Channel(std::unique_ptr<Transport> transport, std::string my_name, std::string peer_name)
    : inbox_(channel::MostMessageBytes()),
      transport_(std::move(transport)),
      my_name_(std::move(my_name)),
      peer_name_(std::move(peer_name)),
      peer_(1 - transport_->rank()),
      progress_(transport_.get(), this, ProgressOptions()) {
  TFS_CHECK_EQ(transport_->size(), 2);
  progress_.Start();
}

Channel::~Channel() { Close(); }

void Channel::Close() {
  std::call_once(closed_, [this] {
    Fail(Aborted("it was closed"));
    progress_.Join();
  });
}

Status Channel::WaitReady(double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return ready_ || !cause_.ok(); });
  if (!cause_.ok()) return cause_;
  if (ready_) return Status::Ok();
  return DeadlineExceeded(
      my_name_ + " received nothing from " + peer_name_ + " in " + Seconds(seconds) +
      " over the channel's transport, although TensorFlow reaches it: are ports other than those of TF_CONFIG"
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
  if (!progress_.PollOnce()) progress_.WakeIfNotAwake();
}

void Channel::GiveUp(int64_t ticket) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!cause_.ok()) return;
    commands_.push_back({nullptr, ticket});
  }
  if (!progress_.PollOnce()) progress_.WakeIfNotAwake();
}

void Channel::Fail(Status cause) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (requested_failure_.ok()) requested_failure_ = std::move(cause);
  }
  progress_.WakeUp();
}

Status Channel::status() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return cause_;
}

ChannelStats Channel::stats() const {
  std::lock_guard<std::mutex> driving(progress_.mutex());
  std::lock_guard<std::mutex> lock(mutex_);
  ChannelStats stats = stats_;
  stats.outstanding = Outstanding();
  stats.unclaimed = static_cast<int64_t>(pairing_.announced());
  stats.wire = transport_->counters();
  return stats;
}

bool Channel::Poll() {
  if (!hello_sent_) {
    hello_sent_ = true;
    ReceiveNextMessage();
    SendMessage({});
  }
  bool moved = RunCommands();
  moved = transport_->Progress() || moved;
  moved = HandleMessage() || moved;
  CheckForFailure();
  return moved;
}

bool Channel::HasNews() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return !commands_.empty() || !requested_failure_.ok();
}

void Channel::RecordFailure(Status cause) {
  if (failure_.ok()) failure_ = std::move(cause);
}

void Channel::RecordTransportFailure(const Status& status) {
  if (status.code() == Code::kMismatch) return RecordFailure(status);
  RecordFailure({status.code(), peer_name_ + " is out of reach; has it died? (" + status.message() + ")"});
}

// Ends the channel if Fail was called, the transport has failed, or a transfer is overdue.
void Channel::CheckForFailure() {
  if (ended_) return;
  const auto now = Clock::now();
  if (failure_.ok() && now >= next_check_) {
    next_check_ = now + kCheckEvery;
    for (const auto& [ticket, transfer] : transfers_) {
      if (now > transfer->deadline) RecordFailure(OverdueError(*transfer));
    }
  }
  Status requested;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    requested = requested_failure_;
  }
  if (!requested.ok()) return End(requested);
  if (!failure_.ok()) return End(failure_);
}

Status Channel::OverdueError(const Transfer& transfer) const {
  const Request& request = transfer.request();
  return DeadlineExceeded(request.label + " waited " + Seconds(request.timeout_seconds) + " on " + my_name_ +
                          (transfer.sends ? " for the other end to receive its tensor"
                                          : " for the other end to send its tensor") +
                          "; raise the timeout if a step may take longer");
}

void Channel::End(Status cause) {
  ended_ = true;
  const Status named(cause.code(), "the channel between " + my_name_ + " and " + peer_name_ +
                                       " has ended: " + cause.message());
  if (peer_receives_) {
    failure_ = Status::Ok();  // from now on: the failure of the last message
    Message last;
    last.kind = MessageKind::kEnd;
    last.code = cause.code();
    last.body = cause.message();
    SendMessage(last);
    const auto latest = Clock::now() + kLastMessageTime;
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
    progress_.Complete(std::move(request.done), named);
    transfer->in.place = nullptr;
    abandoned_.push_back(std::move(transfer));
  }
  transfers_.clear();
}

}  // namespace tf_strategies

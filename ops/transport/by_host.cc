#include "ops/transport/by_host.h"

#include <poll.h>

#include <string>
#include <utility>

namespace tf_strategies {
namespace {

class ByHostTransport final : public Transport {
 public:
  ByHostTransport(std::unique_ptr<Transport> within, std::unique_ptr<Transport> between,
                  const std::vector<bool>& is_within)
      : within_(std::move(within)), between_(std::move(between)) {
    for (const bool here : is_within) to_.push_back((here ? within_ : between_).get());
  }

  int rank() const override { return within_->rank(); }
  int size() const override { return within_->size(); }

  void Send(int peer, Tag tag, const void* data, size_t bytes, SendDone done) override {
    to_[peer]->Send(peer, tag, data, bytes, std::move(done));
  }

  void Receive(int peer, Tag tag, void* data, size_t bytes, ReceiveDone done) override {
    to_[peer]->Receive(peer, tag, data, bytes, std::move(done));
  }

  bool Progress() override {
    const bool moved = within_->Progress();
    return between_->Progress() || moved;
  }

  // If only the first can be armed, it may stay armed: both are armed again before the next Wait.
  bool Arm() override { return within_->Arm() && between_->Arm(); }

  void Wait(int timeout_ms) override {
    pollfd events[] = {{within_->EventFd(), POLLIN, 0}, {between_->EventFd(), POLLIN, 0}};
    poll(events, 2, timeout_ms);
  }

  // Wait ends when either of the two transports has an event.
  void Wake() override { between_->Wake(); }

  void Cancel() override {
    within_->Cancel();
    between_->Cancel();
  }

  std::string Describe() const override {
    const std::string near = within_->Describe();
    return near == kNothingYet ? between_->Describe() : near + ", " + between_->Describe();
  }

  TransportCounters counters() const override {
    TransportCounters sum = within_->counters();
    const TransportCounters more = between_->counters();
    sum.messages_sent += more.messages_sent;
    sum.messages_received += more.messages_received;
    sum.bytes_sent += more.bytes_sent;
    sum.bytes_received += more.bytes_received;
    return sum;
  }

  std::vector<ConnectionCounters> connections() const override { return between_->connections(); }

 private:
  // Members are destroyed in reverse order, so messages to other hosts are flushed first.
  const std::unique_ptr<Transport> within_;
  const std::unique_ptr<Transport> between_;
  std::vector<Transport*> to_;  // by peer
};

}  // namespace

Status MakeByHostTransport(std::unique_ptr<Transport> within, std::unique_ptr<Transport> between,
                           std::vector<bool> is_within, std::unique_ptr<Transport>* transport) {
  if (within->rank() != between->rank() || within->size() != between->size()) {
    return InvalidArgument("the two transports must have the same rank and size; got rank " +
                           std::to_string(within->rank()) + " of " + std::to_string(within->size()) +
                           " and rank " + std::to_string(between->rank()) + " of " +
                           std::to_string(between->size()));
  }
  if (static_cast<int>(is_within.size()) != within->size()) {
    return InvalidArgument("is_within must have an entry for each of " + std::to_string(within->size()) +
                           " ranks; got " + std::to_string(is_within.size()));
  }
  if (within->EventFd() < 0 || between->EventFd() < 0) {
    return InvalidArgument(
        "a transport without an event fd cannot be combined with another: one thread must wait for both");
  }
  *transport = std::make_unique<ByHostTransport>(std::move(within), std::move(between), is_within);
  return Status::Ok();
}

}  // namespace tf_strategies

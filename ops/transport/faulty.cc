#include "ops/transport/faulty.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace tf_strategies {
namespace {

using Clock = std::chrono::steady_clock;

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, Fault fault) : inner_(std::move(inner)), fault_(fault) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  void Send(int peer, Tag tag, const void* data, size_t bytes, SendDone done) override {
    const int64_t action = actions_++;
    if (Lost(action)) return;
    if (action != fault_.action) return inner_->Send(peer, tag, data, bytes, std::move(done));
    if (fault_.kind == Fault::Kind::kFail) return done(Failed(action));
    Delay([=, done = std::move(done)]() mutable { inner_->Send(peer, tag, data, bytes, std::move(done)); });
  }

  void Receive(int peer, Tag tag, void* data, size_t bytes, ReceiveDone done) override {
    const int64_t action = actions_++;
    if (Lost(action)) return;
    if (action != fault_.action) return inner_->Receive(peer, tag, data, bytes, std::move(done));
    if (fault_.kind == Fault::Kind::kFail) return done(Failed(action), Received{});
    Delay(
        [=, done = std::move(done)]() mutable { inner_->Receive(peer, tag, data, bytes, std::move(done)); });
  }

  bool Progress() override {
    bool moved = inner_->Progress();
    if (delayed_ && Clock::now() >= due_) {
      auto action = std::move(delayed_);
      delayed_ = nullptr;
      action();
      moved = true;
    }
    return moved;
  }

  bool Arm() override {
    wait_until_due_ = delayed_ != nullptr;
    return inner_->Arm();
  }

  void Wait(int timeout_ms) override {
    if (wait_until_due_) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(due_ - Clock::now()).count();
      timeout_ms = std::min(timeout_ms, static_cast<int>(std::max<int64_t>(left, 0)) + 1);
    }
    inner_->Wait(timeout_ms);
  }
  void Wake() override { inner_->Wake(); }
  void Cancel() override {
    delayed_ = nullptr;
    inner_->Cancel();
  }
  std::string Describe() const override { return "faulty " + inner_->Describe(); }
  TransportCounters counters() const override { return inner_->counters(); }
  std::vector<ConnectionCounters> connections() const override { return inner_->connections(); }

 private:
  bool Lost(int64_t action) const { return fault_.kind == Fault::Kind::kLose && action >= fault_.action; }

  static Status Failed(int64_t action) {
    return Unavailable("the faulty transport failed action " + std::to_string(action) + ", as configured");
  }

  void Delay(std::function<void()> action) {
    due_ = Clock::now() + std::chrono::milliseconds(fault_.delay_ms);
    delayed_ = std::move(action);
  }

  const std::unique_ptr<Transport> inner_;
  const Fault fault_;
  int64_t actions_ = 0;
  std::function<void()> delayed_;
  bool wait_until_due_ = false;
  Clock::time_point due_;
};

}  // namespace

std::unique_ptr<Transport> MakeFaultyTransport(std::unique_ptr<Transport> inner, Fault fault) {
  return std::make_unique<FaultyTransport>(std::move(inner), fault);
}

}  // namespace tf_strategies

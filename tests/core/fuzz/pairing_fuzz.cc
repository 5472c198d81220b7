// The pairing of announcements and receptions against the obvious lists: the oldest of each name find each other.
//
// Input: 3 bytes for each action: what, the name, a number.

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ops/base/check.h"
#include "ops/channel/pairing.h"
#include "tests/core/fuzz/input.h"
#include "tests/core/fuzz/target.h"

namespace tf_strategies::fuzz {
namespace {

using channel::Message;
using channel::Pairing;

enum Action : uint8_t { kAnnounce, kExpect, kGiveUp, kCancel, kTakeStale, kActions };

struct Waiting {
  TransferId id;
  int64_t number = 0;  // of a reception its ticket, of an announcement its order
  uint32_t payload = 0;
  size_t body = 0;
  Pairing::Clock::time_point since;
};

bool Equal(const TransferId& a, const TransferId& b) { return !(a < b) && !(b < a); }

class Run {
 public:
  void Do(uint8_t action, uint8_t name, uint8_t number) {
    const TransferId id{name & 1u, (name >> 1) & 1, (name >> 2) & 1u};
    switch (action % kActions) {
      case kAnnounce: Announce(id, number); break;
      case kExpect: Expect(id); break;
      case kGiveUp: GiveUp(number); break;
      case kCancel: Cancel(number % 8); break;
      default: TakeStale(id, number);
    }
    Compare();
  }

 private:
  static std::deque<Waiting>::iterator Oldest(std::deque<Waiting>* all, const TransferId& id) {
    return std::find_if(all->begin(), all->end(), [&](const Waiting& each) { return Equal(each.id, id); });
  }

  void Announce(const TransferId& id, uint8_t number) {
    Message message;
    message.kind = channel::MessageKind::kTensor;
    message.id = id;
    message.carries_bytes = number % 2 == 1;
    if (message.carries_bytes) message.body.assign(number, 'x');
    message.payload = message.carries_bytes ? 0 : number % 8;
    message.info.dtype = ++order_;
    const std::optional<int64_t> ticket = pairing_.Announce(&message, now_);
    const auto oldest = Oldest(&expected_, id);
    TFS_CHECK_EQ(ticket.has_value(), oldest != expected_.end());
    if (ticket.has_value()) {
      TFS_CHECK_EQ(*ticket, oldest->number);
      expected_.erase(oldest);
      return;
    }
    const uint32_t payload = number % 2 == 1 ? channel::kPayloads : number % 8;
    announced_.push_back({id, order_, payload, number % 2 == 1 ? size_t{number} : 0, now_});
  }

  void Expect(const TransferId& id) {
    const std::optional<Message> message = pairing_.Expect(id, ++ticket_);
    const auto oldest = Oldest(&announced_, id);
    TFS_CHECK_EQ(message.has_value(), oldest != announced_.end());
    if (message.has_value()) {
      TFS_CHECK_EQ(message->info.dtype, oldest->number);
      announced_.erase(oldest);
      return;
    }
    expected_.push_back({id, ticket_, 0, 0, now_});
  }

  void GiveUp(uint8_t number) {
    if (expected_.empty()) return;
    const auto waiting = expected_.begin() + number % static_cast<int>(expected_.size());
    pairing_.GiveUp(waiting->id, waiting->number);
    expected_.erase(waiting);
  }

  void Cancel(uint32_t payload) {
    const bool there = std::any_of(announced_.begin(), announced_.end(),
                                   [&](const Waiting& each) { return each.payload == payload; });
    TFS_CHECK_EQ(pairing_.Cancel(payload), there);
    if (!there) return;
    // A peer that uses a payload number twice may lose either: that of the lowest name goes.
    auto first = announced_.end();
    for (auto each = announced_.begin(); each != announced_.end(); ++each) {
      if (each->payload == payload && (first == announced_.end() || each->id < first->id)) first = each;
    }
    announced_.erase(first);
  }

  void TakeStale(const TransferId& id, uint8_t number) {
    now_ += std::chrono::seconds(number % 12);
    size_t stale = 0;
    for (auto each = announced_.begin(); each != announced_.end();) {
      const bool old =
          each->id.key == id.key && each->id.step != id.step && now_ - each->since > Pairing::kOld;
      stale += old;
      each = old ? announced_.erase(each) : each + 1;
    }
    TFS_CHECK_EQ(pairing_.TakeStale(id.key, id.step, now_).size(), stale);
  }

  void Compare() const {
    size_t bytes = 0;
    for (const Waiting& each : announced_) bytes += each.body;
    TFS_CHECK_EQ(pairing_.announced(), announced_.size());
    TFS_CHECK_EQ(pairing_.announced_bytes(), bytes);
  }

  Pairing pairing_;
  Pairing::Clock::time_point now_;
  std::deque<Waiting> announced_, expected_;
  int64_t ticket_ = 0;
  int32_t order_ = 0;
};

}  // namespace

std::vector<std::string> Seeds() {
  return {std::string({kAnnounce, 0, 2, kAnnounce, 0, 3, kExpect, 0, 0, kExpect, 0, 0}),
          std::string({kExpect, 5, 0, kExpect, 5, 0, kGiveUp, 0, 1, kAnnounce, 5, 9, kAnnounce, 5, 4}),
          std::string({kAnnounce, 1, 4, kCancel, 0, 4, kAnnounce, 1, 5, kTakeStale, 3, 11, kExpect, 1, 0})};
}

}  // namespace tf_strategies::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tf_strategies::fuzz::Run run;
  for (size_t i = 0; i + 3 <= size; i += 3) run.Do(data[i], data[i + 1], data[i + 2]);
  return 0;
}

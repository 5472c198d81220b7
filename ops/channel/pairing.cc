#include "ops/channel/pairing.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace tf_strategies::channel {

void Pairing::Count(const Message& message, int sign) {
  announced_count_ += sign;
  announced_bytes_ += sign * (message.body.size() + message.info.dims.size() * sizeof(message.info.dims[0]));
}

std::optional<int64_t> Pairing::Announce(Message* message, Clock::time_point now) {
  const auto expected = expected_.find(message->id);
  if (expected == expected_.end()) {
    Count(*message, 1);
    auto& queue = announced_[message->id];
    queue.push_back({std::move(*message), now});
    return std::nullopt;
  }
  const int64_t ticket = expected->second.front();
  expected->second.pop_front();
  if (expected->second.empty()) expected_.erase(expected);
  return ticket;
}

std::optional<Message> Pairing::Expect(const TransferId& id, int64_t ticket) {
  const auto announced = announced_.find(id);
  if (announced == announced_.end()) {
    expected_[id].push_back(ticket);
    return std::nullopt;
  }
  Message message = std::move(announced->second.front().message);
  announced->second.pop_front();
  Count(message, -1);
  if (announced->second.empty()) announced_.erase(announced);
  return message;
}

void Pairing::GiveUp(const TransferId& id, int64_t ticket) {
  const auto expected = expected_.find(id);
  if (expected == expected_.end()) return;
  auto& tickets = expected->second;
  tickets.erase(std::remove(tickets.begin(), tickets.end(), ticket), tickets.end());
  if (tickets.empty()) expected_.erase(expected);
}

bool Pairing::Cancel(uint32_t payload) {
  for (auto entry = announced_.begin(); entry != announced_.end(); ++entry) {
    auto& queue = entry->second;
    const auto found = std::find_if(queue.begin(), queue.end(), [&](const Announced& each) {
      return !each.message.carries_bytes && each.message.payload == payload;
    });
    if (found == queue.end()) continue;
    Count(found->message, -1);
    queue.erase(found);
    if (queue.empty()) announced_.erase(entry);
    return true;
  }
  return false;
}

std::vector<Message> Pairing::TakeStale(uint32_t key, int64_t step, Clock::time_point now) {
  std::vector<Message> stale;
  auto entry = announced_.lower_bound({key, std::numeric_limits<int64_t>::min(), 0});
  while (entry != announced_.end() && entry->first.key == key) {
    auto& queue = entry->second;
    while (entry->first.step != step && !queue.empty() && now - queue.front().since > kOld) {
      stale.push_back(std::move(queue.front().message));
      queue.pop_front();
      Count(stale.back(), -1);
    }
    entry = queue.empty() ? announced_.erase(entry) : std::next(entry);
  }
  return stale;
}

}  // namespace tf_strategies::channel

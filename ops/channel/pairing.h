// Matches announced tensors with the receptions that wait for them. Not thread-safe.
//
// TensorFlow may cancel a step at any time (the data ended, another operation failed). Then the announcement or the
// reception may never arrive. A cancelled reception is removed by its ticket. An announcement whose sender was
// cancelled is removed by its payload number. An announcement that contains its bytes is removed when it is old and
// another step has used its key.
#ifndef OPS_CHANNEL_PAIRING_H_
#define OPS_CHANNEL_PAIRING_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "ops/channel/message.h"

namespace tf_strategies::channel {

class Pairing {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kOld{10};

  // Returns the ticket of the oldest reception that waits for this announcement. If there is none, the announcement
  // is stored.
  std::optional<int64_t> Announce(Message* message, Clock::time_point now);

  // Returns the oldest announcement for the reception. If there is none, the ticket is stored.
  std::optional<Message> Expect(const TransferId& id, int64_t ticket);

  // Removes a waiting reception.
  void GiveUp(const TransferId& id, int64_t ticket);

  // Removes an announcement by its payload number. Returns true if there was one.
  bool Cancel(uint32_t payload);

  // Removes and returns the announcements of the key from other steps that arrived before now - kOld.
  std::vector<Message> TakeStale(uint32_t key, int64_t step, Clock::time_point now);

  // The number of stored announcements, and the size of their bytes and dimensions.
  size_t announced() const { return announced_count_; }
  size_t announced_bytes() const { return announced_bytes_; }

 private:
  struct Announced {
    Message message;
    Clock::time_point since;
  };

  // Adds an announcement to the counts, or subtracts it.
  void Count(const Message& message, int sign);

  std::map<TransferId, std::deque<Announced>> announced_;
  std::map<TransferId, std::deque<int64_t>> expected_;
  size_t announced_count_ = 0;
  size_t announced_bytes_ = 0;
};

}  // namespace tf_strategies::channel

#endif  // OPS_CHANNEL_PAIRING_H_

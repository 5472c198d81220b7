// Brings together the tensors that have been announced and the receptions that wait for them. Not thread-safe.
//
// TensorFlow gives up steps in the middle (the data ended, another operation failed), and then one of the two may never
// come. A reception that is given up is taken out by its ticket. An announcement whose sender was given up is cancelled by
// its payload number; one that carried its bytes is forgotten when it is old and its key has been used in a later step.
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

  // The oldest reception that waits for this announcement; else none, and the announcement is kept (taken over).
  std::optional<int64_t> Announce(Message* message, Clock::time_point now);

  // The oldest announcement for the reception; else none, and the ticket waits.
  std::optional<Message> Expect(const TransferId& id, int64_t ticket);

  // The reception waits no longer.
  void GiveUp(const TransferId& id, int64_t ticket);

  // Takes an unpaired announcement out by its payload. Returns whether there was one.
  bool Cancel(uint32_t payload);

  // Takes out the announcements of the key from other steps that came before now - kOld.
  std::vector<Message> TakeStale(uint32_t key, int64_t step, Clock::time_point now);

  // How many announcements wait, and the bytes that they carry and their dimensions take.
  size_t announced() const { return announced_count_; }
  size_t announced_bytes() const { return announced_bytes_; }

 private:
  struct Announced {
    Message message;
    Clock::time_point since;
  };

  void Count(const Message& message, int sign);

  std::map<TransferId, std::deque<Announced>> announced_;
  std::map<TransferId, std::deque<int64_t>> expected_;
  size_t announced_count_ = 0;
  size_t announced_bytes_ = 0;
};

}  // namespace tf_strategies::channel

#endif  // OPS_CHANNEL_PAIRING_H_

// Recorder: keeps the last collectives of a rank, with the times of their stages.
#ifndef OPS_COMMUNICATOR_RECORDER_H_
#define OPS_COMMUNICATOR_RECORDER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/base/status.h"
#include "ops/communicator/collective.h"

namespace tf_strategies {

// Not thread-safe. It allocates only when it is made.
class Recorder {
 public:
  using Clock = std::chrono::steady_clock;

  struct Entry {
    int64_t number = -1;  // of the collectives of this rank, from 0
    int instance = -1;
    int64_t use = -1;  // of the instance, from 0; the same on all ranks; -1 until it is started
    std::shared_ptr<const Collective> collective;
    Clock::time_point submitted;
    Clock::time_point started;  // when its first messages were posted; the epoch of the clock until then
    Clock::time_point ended;    // likewise
    int last_peer = -1;         // the rank whose data arrived last, or -1
    Code code = Code::kOk;      // how it ended
  };

  explicit Recorder(int capacity) : entries_(capacity) {}

  // Replaces the oldest entry when all are in use. Returns the number of the collective.
  int64_t Submitted(int instance, std::shared_ptr<const Collective> collective, Clock::time_point when);
  // Each is called once for a number. The entry may have been replaced.
  void Started(int64_t number, int64_t use);
  void Ended(int64_t number, int last_peer, Code code);

  // The seconds so far in which at least one collective was outstanding.
  double SecondsOutstanding() const;

  // The last collective on an instance, or null.
  const Collective* LastOn(int instance) const;

  std::vector<Entry> Entries() const;  // the oldest first

 private:
  Entry* Find(int64_t number);

  std::vector<Entry> entries_;  // by number, modulo the capacity
  int64_t next_ = 0;
  int64_t outstanding_ = 0;
  Clock::time_point outstanding_since_;  // while there are some
  Clock::duration outstanding_before_{};
};

}  // namespace tf_strategies

#endif  // OPS_COMMUNICATOR_RECORDER_H_

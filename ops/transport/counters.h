// Counters of the messages and bytes of a transport. The progress thread writes them; any thread may read them.
#ifndef OPS_TRANSPORT_COUNTERS_H_
#define OPS_TRANSPORT_COUNTERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ops/transport/transport.h"

namespace tf_strategies {

class WireCounters {
 public:
  void Sent(size_t bytes) { Add(&messages_sent_, &bytes_sent_, bytes); }
  void Received(size_t bytes) { Add(&messages_received_, &bytes_received_, bytes); }

  TransportCounters Read() const {
    TransportCounters counters;
    counters.messages_sent = messages_sent_.load(std::memory_order_relaxed);
    counters.messages_received = messages_received_.load(std::memory_order_relaxed);
    counters.bytes_sent = bytes_sent_.load(std::memory_order_relaxed);
    counters.bytes_received = bytes_received_.load(std::memory_order_relaxed);
    return counters;
  }

 private:
  using Count = std::atomic<int64_t>;
  static void Add(Count* messages, Count* total, size_t bytes) {
    messages->fetch_add(1, std::memory_order_relaxed);
    total->fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  }

  Count messages_sent_{0};
  Count messages_received_{0};
  Count bytes_sent_{0};
  Count bytes_received_{0};
};

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_COUNTERS_H_

// A transport that wraps another and causes a fault at a chosen action, for tests of failures.
#ifndef OPS_TRANSPORT_FAULTY_H_
#define OPS_TRANSPORT_FAULTY_H_

#include <cstdint>
#include <memory>

#include "ops/transport/transport.h"

namespace tf_strategies {

struct Fault {
  enum class Kind {
    kFail,   // the action completes with kUnavailable
    kLose,   // the action and all later ones are ignored and never complete, as if the rank had died
    kDelay,  // the action starts `delay_ms` later; other actions are not delayed
  };
  Kind kind = Kind::kFail;
  int64_t action = 0;  // the number of the action among the sends and receptions of this rank, from 0
  int delay_ms = 0;
};

// Returns a transport that passes all actions on to `inner`, except for the fault.
std::unique_ptr<Transport> MakeFaultyTransport(std::unique_ptr<Transport> inner, Fault fault);

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_FAULTY_H_

// Transport that wraps another and does harm at a chosen action: for tests of what happens then.
#ifndef OPS_TRANSPORT_FAULTY_H_
#define OPS_TRANSPORT_FAULTY_H_

#include <cstdint>
#include <memory>

#include "ops/transport/transport.h"

namespace tf_strategies {

struct Fault {
  enum class Kind {
    kFail,   // the action completes with kUnavailable
    kLose,   // the action and all after it never happen and never complete: a rank that died
    kDelay,  // the action starts only `delay_ms` later; the others go on
  };
  Kind kind = Kind::kFail;
  int64_t action = 0;  // counts this rank's sends and receptions from 0
  int delay_ms = 0;
};

std::unique_ptr<Transport> MakeFaultyTransport(std::unique_ptr<Transport> inner, Fault fault);

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_FAULTY_H_

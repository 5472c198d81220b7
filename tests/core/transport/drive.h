// Moves transports from the thread of the test.
#ifndef TESTS_CORE_TRANSPORT_DRIVE_H_
#define TESTS_CORE_TRANSPORT_DRIVE_H_

#include <chrono>
#include <functional>
#include <vector>

#include "ops/transport/transport.h"

namespace tf_strategies {

// Returns whether the condition holds, for which it waits 20 s at most.
inline bool Drive(const std::vector<Transport*>& transports, const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done() && std::chrono::steady_clock::now() < end) {
    for (Transport* transport : transports) transport->Progress();
  }
  return done();
}

}  // namespace tf_strategies

#endif  // TESTS_CORE_TRANSPORT_DRIVE_H_

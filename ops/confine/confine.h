// Confines TensorFlow's server, which listens on all interfaces, to the loopback interface.
#ifndef OPS_CONFINE_CONFINE_H_
#define OPS_CONFINE_CONFINE_H_

#include <chrono>
#include <functional>

#include "ops/base/status.h"

namespace tf_strategies {

// Waits until a socket of this process listens on the TCP port, and confines all such sockets to the loopback interface. Where
// the kernel allows a filter, it also drops packets of connections that were begun before. Other sockets of this user may
// listen on the port from then on (SO_REUSEPORT). It looks every millisecond, until `until` or until `stopped` says so.
//
// Returns kDeadlineExceeded if no socket listens on the port, and kFailedPrecondition if the kernel does not allow it.
Status ConfineToLoopback(int port, std::chrono::steady_clock::time_point until,
                         const std::function<bool()>& stopped);

// Shuts down the connections on the port that other hosts had completed before. It looks again until `until`, because the
// server may accept them late.
void ShutConnectionsFromElsewhere(int port, std::chrono::steady_clock::time_point until);

}  // namespace tf_strategies

#endif  // OPS_CONFINE_CONFINE_H_

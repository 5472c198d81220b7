// Confines TensorFlow's server, which listens on all interfaces, to the loopback interface.
#ifndef OPS_CONFINE_CONFINE_H_
#define OPS_CONFINE_CONFINE_H_

#include <chrono>
#include <functional>

#include "ops/base/status.h"

namespace tf_strategies {

// Waits until a socket of this process listens on the TCP port, and confines all such sockets to the loopback interface
// (SO_BINDTODEVICE). Other sockets of this user may listen on the port from then on (SO_REUSEPORT). Connections from
// elsewhere that were accepted before are shut down. It looks every millisecond, until `until` or until `stopped` says so.
//
// Returns kDeadlineExceeded if no socket listens on the port, and kFailedPrecondition if the kernel does not allow it (Linux
// before 5.7).
Status ConfineToLoopback(int port, std::chrono::steady_clock::time_point until,
                         const std::function<bool()>& stopped);

}  // namespace tf_strategies

#endif  // OPS_CONFINE_CONFINE_H_

// What the system knows of a TCP connection.
#ifndef OPS_TRANSPORT_TCP_CONNECTION_H_
#define OPS_TRANSPORT_TCP_CONNECTION_H_

#include "ops/transport/transport.h"

namespace tf_strategies::tcp {

// Sets what the system counts: all but the peer and the messages. Returns false for a socket that is not TCP, and on a system that
// does not count.
bool ReadConnection(int socket, ConnectionCounters* counters);

}  // namespace tf_strategies::tcp

#endif  // OPS_TRANSPORT_TCP_CONNECTION_H_

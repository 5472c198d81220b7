// Transport over TCP connections that exist: whoever makes them, makes sure of who is at the other end.
//
// A connection to each peer carries frames (frame.h) in both directions. Long messages are read into their places.
#ifndef OPS_TRANSPORT_TCP_TCP_TRANSPORT_H_
#define OPS_TRANSPORT_TCP_TCP_TRANSPORT_H_

#include <memory>
#include <vector>

#include "ops/base/status.h"
#include "ops/transport/transport.h"

namespace tf_strategies {

// sockets: by rank, connected stream sockets; -1 for this rank itself, and for ranks that this transport does not reach. They are
// taken over, also when this fails.
Status MakeTcpTransport(int rank, std::vector<int> sockets, std::unique_ptr<Transport>* transport);

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_TCP_TCP_TRANSPORT_H_

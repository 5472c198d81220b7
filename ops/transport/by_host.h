// A transport that uses one transport for the ranks of this host, and another for the ranks of other hosts.
#ifndef OPS_TRANSPORT_BY_HOST_H_
#define OPS_TRANSPORT_BY_HOST_H_

#include <memory>
#include <vector>

#include "ops/base/status.h"
#include "ops/transport/transport.h"

namespace tf_strategies {

// Makes a transport from two others. It destroys both if it returns an error.
//
// within, between: transports of the same rank and size, each with an event fd. Each must reach its own peers.
// is_within: [size], true for the ranks that `within` reaches.
Status MakeByHostTransport(std::unique_ptr<Transport> within, std::unique_ptr<Transport> between,
                           std::vector<bool> is_within, std::unique_ptr<Transport>* transport);

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_BY_HOST_H_

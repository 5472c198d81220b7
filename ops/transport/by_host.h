// Transport of two: one to the ranks of this host, one to those of other hosts.
#ifndef OPS_TRANSPORT_BY_HOST_H_
#define OPS_TRANSPORT_BY_HOST_H_

#include <memory>
#include <vector>

#include "ops/base/status.h"
#include "ops/transport/transport.h"

namespace tf_strategies {

// within, between: two transports of one rank and size, each with an event fd, and with a way to its own peers at least.
// is_within[r]: rank r is reached by `within`. On an error both are destroyed.
Status MakeByHostTransport(std::unique_ptr<Transport> within, std::unique_ptr<Transport> between,
                           std::vector<bool> is_within, std::unique_ptr<Transport>* transport);

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_BY_HOST_H_

// Transport between threads of one process: for tests of everything above the wire.
#ifndef OPS_TRANSPORT_IN_PROCESS_H_
#define OPS_TRANSPORT_IN_PROCESS_H_

#include <memory>

#include "ops/transport/transport.h"

namespace tf_strategies {

// The shared side: one inbox a rank. Endpoints keep it alive.
class InProcessFabric;

// Messages of up to `eager_bytes` are copied when sent, and the send completes at once; longer ones stay in the sender's
// memory until the receiver has copied them, as a rendezvous does on a real wire.
std::shared_ptr<InProcessFabric> MakeInProcessFabric(int size, size_t eager_bytes);

// The transport of one rank; make one for each.
std::unique_ptr<Transport> MakeInProcessTransport(std::shared_ptr<InProcessFabric> fabric, int rank);

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_IN_PROCESS_H_

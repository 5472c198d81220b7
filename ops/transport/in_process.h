// A transport between threads of one process, for tests of the layers above the transport.
#ifndef OPS_TRANSPORT_IN_PROCESS_H_
#define OPS_TRANSPORT_IN_PROCESS_H_

#include <memory>

#include "ops/transport/transport.h"

namespace tf_strategies {

// The state that all ranks share: one inbox for each rank. The transports keep it alive.
class InProcessFabric;

// Makes the shared state of a group.
//
// Messages of up to `eager_bytes` bytes are copied when they are sent, and the send completes at once. Longer
// messages stay in the sender's memory until the receiver has copied them, as in a rendezvous protocol.
std::shared_ptr<InProcessFabric> MakeInProcessFabric(int size, size_t eager_bytes);

// Makes the transport of one rank.
std::unique_ptr<Transport> MakeInProcessTransport(std::shared_ptr<InProcessFabric> fabric, int rank);

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_IN_PROCESS_H_

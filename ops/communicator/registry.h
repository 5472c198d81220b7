// The communicators of this process, by id. Ops and Python use these ids.
#ifndef OPS_COMMUNICATOR_REGISTRY_H_
#define OPS_COMMUNICATOR_REGISTRY_H_

#include <cstdint>
#include <memory>

#include "ops/communicator/communicator.h"

namespace tf_strategies {

// All functions are thread-safe. An id is never used twice. A forked process has none of its parent's
// communicators.
int64_t RegisterCommunicator(std::shared_ptr<Communicator> communicator);
void AlsoCallCommunicator(int64_t further, int64_t id);        // until it is removed
std::shared_ptr<Communicator> FindCommunicator(int64_t id);    // null when there is none (any more)
std::shared_ptr<Communicator> RemoveCommunicator(int64_t id);  // null when there is none (any more)

}  // namespace tf_strategies

#endif  // OPS_COMMUNICATOR_REGISTRY_H_

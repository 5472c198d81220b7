#include "ops/communicator/registry.h"

#include <utility>

#include "ops/base/registry.h"

namespace tf_strategies {
namespace {

Registry<Communicator>& Communicators() { return Registry<Communicator>::Get(); }

}  // namespace

int64_t RegisterCommunicator(std::shared_ptr<Communicator> communicator) {
  return Communicators().Add(std::move(communicator));
}

void AlsoCallCommunicator(int64_t further, int64_t id) { Communicators().AlsoCall(further, id); }

std::shared_ptr<Communicator> FindCommunicator(int64_t id) { return Communicators().Find(id); }

std::shared_ptr<Communicator> RemoveCommunicator(int64_t id) { return Communicators().Remove(id); }

}  // namespace tf_strategies

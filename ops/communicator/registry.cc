#include "ops/communicator/registry.h"

#include <map>
#include <mutex>
#include <random>
#include <utility>

namespace tf_strategies {
namespace {

struct Registry {
  std::mutex mutex;
  // Ids start anywhere: a graph that another process saved must not name a communicator of this one.
  int64_t last_id = static_cast<int64_t>(std::random_device{}()) << 20;
  std::map<int64_t, std::shared_ptr<Communicator>> communicators;
};

// Never destroyed: progress threads may outlive static destruction.
Registry& TheRegistry() {
  static Registry* registry = new Registry;
  return *registry;
}

}  // namespace

int64_t RegisterCommunicator(std::shared_ptr<Communicator> communicator) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  registry.communicators[++registry.last_id] = std::move(communicator);
  return registry.last_id;
}

std::shared_ptr<Communicator> FindCommunicator(int64_t id) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.communicators.find(id);
  return found == registry.communicators.end() ? nullptr : found->second;
}

std::shared_ptr<Communicator> RemoveCommunicator(int64_t id) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.communicators.find(id);
  if (found == registry.communicators.end()) return nullptr;
  auto communicator = std::move(found->second);
  registry.communicators.erase(found);
  return communicator;
}

}  // namespace tf_strategies

#include "ops/communicator/registry.h"

#include <pthread.h>

#include <map>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

namespace tf_strategies {
namespace {

struct Registry {
  std::mutex mutex;
  // Ids start anywhere: a graph that another process saved must not name a communicator of this one.
  int64_t last_id = static_cast<int64_t>(std::random_device{}()) << 20;
  std::map<int64_t, std::shared_ptr<Communicator>> communicators;
};

Registry& TheRegistry();

void LockBeforeFork() { TheRegistry().mutex.lock(); }
void UnlockAfterFork() { TheRegistry().mutex.unlock(); }

// A forked child has none of the threads that drive the parent's communicators. They are never destroyed there.
void ForgetInChild() {
  using Communicators = std::map<int64_t, std::shared_ptr<Communicator>>;
  static auto* const left = new std::vector<Communicators>;
  left->push_back(std::move(TheRegistry().communicators));
  TheRegistry().communicators.clear();
  UnlockAfterFork();
}

// Never destroyed: progress threads may outlive static destruction.
Registry& TheRegistry() {
  static Registry* const registry = [] {
    auto* const made = new Registry;
    pthread_atfork(LockBeforeFork, UnlockAfterFork, ForgetInChild);
    return made;
  }();
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

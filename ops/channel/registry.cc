#include "ops/channel/registry.h"

#include <map>
#include <mutex>
#include <random>
#include <utility>

namespace tf_strategies {
namespace {

struct Registry {
  std::mutex mutex;
  // Ids start anywhere: a graph that another process saved must not name a channel of this one.
  int64_t last_id = static_cast<int64_t>(std::random_device{}()) << 20;
  std::map<int64_t, std::shared_ptr<Channel>> channels;
};

// Never destroyed: progress threads may outlive static destruction.
Registry& TheRegistry() {
  static Registry* registry = new Registry;
  return *registry;
}

}  // namespace

int64_t RegisterChannel(std::shared_ptr<Channel> channel) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  registry.channels[++registry.last_id] = std::move(channel);
  return registry.last_id;
}

std::shared_ptr<Channel> FindChannel(int64_t id) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.channels.find(id);
  return found == registry.channels.end() ? nullptr : found->second;
}

std::vector<int64_t> ChannelsTo(const std::string& peer_name) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  std::vector<int64_t> ids;
  for (const auto& [id, channel] : registry.channels) {
    if (channel->peer_name() == peer_name) ids.push_back(id);
  }
  return ids;
}

void CloseChannel(int64_t id) {
  std::shared_ptr<Channel> channel;
  {
    Registry& registry = TheRegistry();
    std::lock_guard<std::mutex> lock(registry.mutex);
    const auto found = registry.channels.find(id);
    if (found == registry.channels.end()) return;
    channel = std::move(found->second);
    registry.channels.erase(found);
  }
  channel->Close();
}

void CloseAllChannels() {
  std::map<int64_t, std::shared_ptr<Channel>> channels;
  {
    Registry& registry = TheRegistry();
    std::lock_guard<std::mutex> lock(registry.mutex);
    channels.swap(registry.channels);
  }
  for (const auto& [id, channel] : channels) channel->Close();
}

}  // namespace tf_strategies

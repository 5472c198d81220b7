#include "ops/channel/registry.h"

#include <utility>

#include "ops/base/registry.h"

namespace tf_strategies {
namespace {

Registry<Channel>& Channels() { return Registry<Channel>::Get(); }

}  // namespace

int64_t RegisterChannel(std::shared_ptr<Channel> channel) { return Channels().Add(std::move(channel)); }

std::shared_ptr<Channel> FindChannel(int64_t id) { return Channels().Find(id); }

std::vector<int64_t> ChannelsTo(const std::string& peer_name) {
  std::vector<int64_t> ids;
  for (const auto& [id, channel] : Channels().All()) {
    if (channel->peer_name() == peer_name) ids.push_back(id);
  }
  return ids;
}

void CloseChannel(int64_t id) {
  const auto channel = Channels().Remove(id);
  if (channel != nullptr) channel->Close();
}

void CloseAllChannels() {
  for (const auto& [id, channel] : Channels().RemoveAll()) channel->Close();
}

}  // namespace tf_strategies

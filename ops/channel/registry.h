// The channels of this process, by id. Ops and Python use these ids.
#ifndef OPS_CHANNEL_REGISTRY_H_
#define OPS_CHANNEL_REGISTRY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/channel/channel.h"

namespace tf_strategies {

// All functions are thread-safe. An id is never used twice. A forked process has none of its parent's
// channels.
int64_t RegisterChannel(std::shared_ptr<Channel> channel);
std::shared_ptr<Channel> FindChannel(int64_t id);               // null when there is none (any more)
std::vector<int64_t> ChannelsTo(const std::string& peer_name);  // in the order they were made
void CloseChannel(int64_t id);                                  // nothing when there is none (any more)
void CloseAllChannels();

}  // namespace tf_strategies

#endif  // OPS_CHANNEL_REGISTRY_H_

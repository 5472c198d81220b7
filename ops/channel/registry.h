// The channels of this process, by id. Operations and Python use these ids.
#ifndef OPS_CHANNEL_REGISTRY_H_
#define OPS_CHANNEL_REGISTRY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/channel/channel.h"

namespace tf_strategies {

// All functions are thread-safe. An id is never used twice. A forked process does not have the channels of its
// parent.
int64_t RegisterChannel(std::shared_ptr<Channel> channel);
std::shared_ptr<Channel> FindChannel(int64_t id);               // null if it is not open
std::vector<int64_t> ChannelsTo(const std::string& peer_name);  // in the order in which they were registered
void CloseChannel(int64_t id);                                  // does nothing if it is not open
void CloseAllChannels();

}  // namespace tf_strategies

#endif  // OPS_CHANNEL_REGISTRY_H_

// Keeps connections that workers have opened for data, until the worker's operation on this server claims them.
#ifndef OPS_CHANNEL_OFFERED_SOCKETS_H_
#define OPS_CHANNEL_OFFERED_SOCKETS_H_

#include <chrono>
#include <string>

#include "ops/base/status.h"

namespace tf_strategies {

// Keeps a connected socket, which it takes over, under a token. It is closed if nobody takes it for a minute, or when it is
// the oldest of more than 256. Thread-safe.
void OfferSocket(const std::string& token, int socket);

// Waits for the socket with this token. The caller owns it then. Returns kDeadlineExceeded if it does not come in time.
// Thread-safe.
Status TakeSocket(const std::string& token, std::chrono::milliseconds time, int* socket);

}  // namespace tf_strategies

#endif  // OPS_CHANNEL_OFFERED_SOCKETS_H_

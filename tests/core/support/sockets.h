// Pairs of connected TCP sockets on loopback, in tests.
#ifndef TESTS_CORE_SUPPORT_SOCKETS_H_
#define TESTS_CORE_SUPPORT_SOCKETS_H_

#include <gtest/gtest.h>
#include <netinet/in.h>

#include <utility>
#include <vector>

#include "ops/transport/loopback.h"

namespace tf_strategies {

// Returns a socket that listens on a free port, and sets the address. It waits for a connection for 10 s at most.
inline int Listen(sockaddr_in* address) {
  int listener = -1;
  const Status status = ListenOnLoopback(address, &listener);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return listener;
}

inline std::pair<int, int> ConnectedSockets() {
  int first = -1, second = -1;
  const Status status = ConnectOverLoopback(&first, &second);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return {first, second};
}

// By rank, the sockets of each rank to all others.
inline std::vector<std::vector<int>> SocketsOfAll(int size) {
  std::vector<std::vector<int>> sockets;
  const Status status = ConnectAllOverLoopback(size, &sockets);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return sockets;
}

}  // namespace tf_strategies

#endif  // TESTS_CORE_SUPPORT_SOCKETS_H_

// Pairs of connected TCP sockets on loopback.
#ifndef TESTS_CORE_TRANSPORT_SOCKETS_H_
#define TESTS_CORE_TRANSPORT_SOCKETS_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <tuple>
#include <utility>
#include <vector>

namespace tf_strategies {

// Returns a socket that listens on a free port, and sets the address. It waits for a connection for 10 s at most.
inline int Listen(sockaddr_in* address) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  *address = {};
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(*address);
  auto* const where = reinterpret_cast<sockaddr*>(address);
  EXPECT_EQ(bind(listener, where, length), 0);
  EXPECT_EQ(listen(listener, 1), 0);
  EXPECT_EQ(getsockname(listener, where, &length), 0);
  const timeval wait{10, 0};
  EXPECT_EQ(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)), 0);
  return listener;
}

inline std::pair<int, int> ConnectedSockets() {
  sockaddr_in address;
  const int listener = Listen(&address);
  const int first = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(first, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const int second = accept(listener, nullptr, nullptr);
  EXPECT_GE(second, 0);
  close(listener);
  return {first, second};
}

// By rank, the sockets of each rank to all others.
inline std::vector<std::vector<int>> SocketsOfAll(int size) {
  std::vector<std::vector<int>> sockets(size, std::vector<int>(size, -1));
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) std::tie(sockets[a][b], sockets[b][a]) = ConnectedSockets();
  }
  return sockets;
}

}  // namespace tf_strategies

#endif  // TESTS_CORE_TRANSPORT_SOCKETS_H_

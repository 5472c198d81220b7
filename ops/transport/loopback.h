// TCP connections over loopback between the ranks of one process, for tests and benchmarks. The caller owns all sockets.
#ifndef OPS_TRANSPORT_LOOPBACK_H_
#define OPS_TRANSPORT_LOOPBACK_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "ops/base/status.h"

namespace tf_strategies {

// Makes a socket that listens on a free port of loopback. It waits for a connection for 10 s at most.
inline Status ListenOnLoopback(sockaddr_in* address, int* listener) {
  *listener = socket(AF_INET, SOCK_STREAM, 0);
  *address = {};
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(*address);
  auto* const where = reinterpret_cast<sockaddr*>(address);
  const timeval wait{10, 0};
  const bool listens = bind(*listener, where, length) == 0 && listen(*listener, 1) == 0 &&
                       getsockname(*listener, where, &length) == 0 &&
                       setsockopt(*listener, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) == 0;
  return listens ? Status::Ok() : Internal(std::string("cannot listen on loopback: ") + std::strerror(errno));
}

// Connects two sockets.
inline Status ConnectOverLoopback(int* first, int* second) {
  sockaddr_in address;
  int listener = -1;
  Status status = ListenOnLoopback(&address, &listener);
  *first = socket(AF_INET, SOCK_STREAM, 0);
  *second = -1;
  if (status.ok() && connect(*first, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    *second = accept(listener, nullptr, nullptr);
  }
  if (status.ok() && *second < 0) {
    status = Internal(std::string("no connection over loopback: ") + std::strerror(errno));
  }
  close(listener);
  return status;
}

// Connects all ranks to one another. Returns by rank the sockets to all ranks, -1 for the rank itself.
inline Status ConnectAllOverLoopback(int ranks, std::vector<std::vector<int>>* sockets) {
  sockets->assign(ranks, std::vector<int>(ranks, -1));
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) {
      const Status status = ConnectOverLoopback(&(*sockets)[a][b], &(*sockets)[b][a]);
      if (!status.ok()) return status;
    }
  }
  return Status::Ok();
}

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_LOOPBACK_H_

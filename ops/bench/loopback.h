// TCP connections over loopback between the ranks of a benchmark.
#ifndef OPS_BENCH_LOOPBACK_H_
#define OPS_BENCH_LOOPBACK_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "ops/base/status.h"
#include "ops/bench/die_unless.h"

namespace tf_strategies {

// Connects two sockets over loopback.
inline void Connect(int* first, int* second) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  *first = socket(AF_INET, SOCK_STREAM, 0);
  const bool connected = bind(listener, where, length) == 0 && listen(listener, 1) == 0 &&
                         getsockname(listener, where, &length) == 0 && connect(*first, where, length) == 0;
  *second = connected ? accept(listener, nullptr, nullptr) : -1;
  close(listener);
  if (*second < 0) DieUnless(Internal("no connection over loopback"));
}

// Returns, by rank, the sockets to all ranks; -1 for the rank itself.
inline std::vector<std::vector<int>> ConnectAll(int ranks) {
  std::vector<std::vector<int>> sockets(ranks, std::vector<int>(ranks, -1));
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) Connect(&sockets[a][b], &sockets[b][a]);
  }
  return sockets;
}

}  // namespace tf_strategies

#endif  // OPS_BENCH_LOOPBACK_H_

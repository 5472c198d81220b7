// Transports of all ranks of a group, in one process, over real shared memory and real sockets.
#ifndef TESTS_CORE_TRANSPORT_OPEN_WIRES_H_
#define TESTS_CORE_TRANSPORT_OPEN_WIRES_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/transport/by_host.h"
#include "ops/transport/tcp/tcp_transport.h"
#include "ops/transport/transport.h"
#include "ops/transport/ucx.h"
#include "tests/core/support/sockets.h"
#include "tests/core/transport/certificates.h"

namespace tf_strategies {

using Transports = std::vector<std::unique_ptr<Transport>>;

inline Transports Ucx(int size, const UcxOptions& options, bool same_host) {
  std::vector<std::unique_ptr<UcxWorker>> workers(size);
  std::vector<std::string> addresses;
  for (auto& worker : workers) {
    const Status status = UcxWorker::Open(options, &worker);
    EXPECT_TRUE(status.ok()) << status.ToString();
    addresses.push_back(worker->address());
  }
  Transports transports(size);
  for (int rank = 0; rank < size; ++rank) {
    const Status status = UcxWorker::Connect(std::move(workers[rank]), rank, addresses,
                                             std::vector<bool>(size, same_host), &transports[rank]);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  return transports;
}

// tls: the folder of the certificates; "" for none.
inline Transports Tcp(int size, const std::string& tls = "") {
  const auto sockets = SocketsOfAll(size);
  Transports transports(size);
  for (int rank = 0; rank < size; ++rank) {
    const Status status = MakeTcpTransport(rank, sockets[rank], {tls}, &transports[rank]);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  return transports;
}

// host: of each of the first `size` ranks. tls: as above.
inline Transports ByHost(const std::vector<int>& host, int size, const std::string& tls = "") {
  auto sockets = SocketsOfAll(size);
  std::vector<std::unique_ptr<UcxWorker>> workers(size);
  for (auto& worker : workers) {
    const Status status = UcxWorker::Open({"sm", ""}, &worker);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  std::vector<std::string> all;
  for (const auto& worker : workers) all.push_back(worker->address());
  Transports transports(size);
  for (int rank = 0; rank < size; ++rank) {
    std::vector<bool> is_within(size);
    std::vector<std::string> addresses(size);
    for (int peer = 0; peer < size; ++peer) {
      is_within[peer] = host[peer] == host[rank];
      if (!is_within[peer]) continue;
      addresses[peer] = all[peer];
      if (peer != rank) close(std::exchange(sockets[rank][peer], -1));
    }
    std::unique_ptr<Transport> within, between;
    for (const Status& status :
         {UcxWorker::Connect(std::move(workers[rank]), rank, addresses, is_within, &within),
          MakeTcpTransport(rank, sockets[rank], {tls}, &between),
          MakeByHostTransport(std::move(within), std::move(between), is_within, &transports[rank])}) {
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
  }
  return transports;
}

}  // namespace tf_strategies

#endif  // TESTS_CORE_TRANSPORT_OPEN_WIRES_H_

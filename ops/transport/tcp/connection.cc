#include "ops/transport/tcp/connection.h"

#include <linux/tcp.h>  // its tcp_info has more than that of <netinet/tcp.h>; a file cannot include both
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>

namespace tf_strategies::tcp {
namespace {

constexpr double kMicrosecond = 1e-6;

}  // namespace

bool ReadConnection(int socket, ConnectionCounters* counters) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  // An older system fills a shorter structure.
  if (length < offsetof(tcp_info, tcpi_rwnd_limited) + sizeof(info.tcpi_rwnd_limited)) return false;
  counters->bytes = static_cast<int64_t>(info.tcpi_bytes_acked);
  counters->seconds = static_cast<double>(info.tcpi_busy_time - info.tcpi_rwnd_limited) * kMicrosecond;
  return true;
}

}  // namespace tf_strategies::tcp

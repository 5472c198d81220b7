#include "ops/confine/confine.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tf_strategies {
namespace {

constexpr std::chrono::milliseconds kLookEvery{1};
constexpr std::chrono::milliseconds kShutEvery{20};
constexpr unsigned kLoopbackIndex = 1;  // in each network namespace (LOOPBACK_IFINDEX of Linux)

using Where = int (*)(int, sockaddr*, socklen_t*);

// Returns the port of one end of an IP socket and whether its address is a loopback address; -1 if it is no such socket.
int PortOf(int socket, Where where, bool* is_loopback) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (where(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return -1;
  if (address.ss_family == AF_INET) {
    const auto& ip = reinterpret_cast<const sockaddr_in&>(address);
    *is_loopback = (ntohl(ip.sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
    return ntohs(ip.sin_port);
  }
  if (address.ss_family == AF_INET6) {
    const auto& ip = reinterpret_cast<const sockaddr_in6&>(address);
    *is_loopback = IN6_IS_ADDR_LOOPBACK(&ip.sin6_addr) ||
                   (IN6_IS_ADDR_V4MAPPED(&ip.sin6_addr) && ip.sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
    return ntohs(ip.sin6_port);
  }
  return -1;
}

bool IsOn(int socket, int option) {
  int value = 0;
  socklen_t size = sizeof(value);
  return getsockopt(socket, SOL_SOCKET, option, &value, &size) == 0 && value != 0;
}

// The TCP sockets of this process on a local port.
std::vector<int> SocketsOn(int port) {
  std::vector<int> sockets;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (folder == nullptr) return sockets;
  while (const dirent* entry = readdir(folder.get())) {
    const int each = std::atoi(entry->d_name);
    int kind = 0;
    socklen_t size = sizeof(kind);
    bool unused;
    if (getsockopt(each, SOL_SOCKET, SO_TYPE, &kind, &size) == 0 && kind == SOCK_STREAM &&
        PortOf(each, getsockname, &unused) == port) {
      sockets.push_back(each);
    }
  }
  return sockets;
}

// Drops each packet of a socket that does not come over the loopback interface.
bool AttachFilter(int socket) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(SKF_AD_OFF + SKF_AD_IFINDEX)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kLoopbackIndex, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, 0xFFFFFFFF),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  const sock_fprog program{4, code};
  return setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0;
}

// Two ways, of which one is enough. SO_BINDTODEVICE takes Linux 5.7 or rights, and does not see connections that were begun
// before. Some kernels let root alone attach a filter.
Status Confine(int socket) {
  const int on = 1;
  const bool shared = setsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0;
  const bool filtered = AttachFilter(socket);
  const bool bound = setsockopt(socket, SOL_SOCKET, SO_BINDTODEVICE, "lo", sizeof("lo")) == 0;
  if (shared && (filtered || bound)) return Status::Ok();
  const int error = errno;
  return FailedPrecondition(std::string("the kernel does not allow it: ") + std::strerror(error));
}

// Confines what listens on a port now, and says whether there was anything.
Status ConfineNow(int port, bool* found) {
  const std::vector<int> sockets = SocketsOn(port);
  for (const int each : sockets) {
    if (!IsOn(each, SO_ACCEPTCONN)) continue;
    *found = true;
    TFS_RETURN_IF_ERROR(Confine(each));
  }
  return Status::Ok();
}

}  // namespace

Status ConfineToLoopback(int port, std::chrono::steady_clock::time_point until,
                         const std::function<bool()>& stopped) {
  bool found = false;
  while (true) {
    TFS_RETURN_IF_ERROR(ConfineNow(port, &found));
    if (found) return Status::Ok();
    if (stopped() || std::chrono::steady_clock::now() >= until) break;
    std::this_thread::sleep_for(kLookEvery);
  }
  return DeadlineExceeded("no socket of this process listens on port " + std::to_string(port));
}

void ShutConnectionsFromElsewhere(int port, std::chrono::steady_clock::time_point until) {
  do {
    for (const int each : SocketsOn(port)) {
      bool is_loopback = false;
      if (PortOf(each, getpeername, &is_loopback) >= 0 && !is_loopback) shutdown(each, SHUT_RDWR);
    }
    std::this_thread::sleep_for(kShutEvery);
  } while (std::chrono::steady_clock::now() < until);
}

}  // namespace tf_strategies

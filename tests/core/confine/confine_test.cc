// Tests that a server which listens on all interfaces is confined to the loopback interface.

#include "ops/confine/confine.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

namespace tf_strategies {
namespace {

using Clock = std::chrono::steady_clock;

const auto kNever = [] { return false; };

class Server {
 public:
  explicit Server(int family) : socket_(socket(family, SOCK_STREAM, 0)) {
    sockaddr_storage address = {};
    address.ss_family = static_cast<sa_family_t>(family);
    socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);  // at the same place in both
  }
  ~Server() { close(socket_); }
  void Listen() { EXPECT_EQ(listen(socket_, 1), 0); }
  int port() const { return port_; }
  int get() const { return socket_; }

  std::string Device() const {
    char name[16] = {};  // IFNAMSIZ
    socklen_t size = sizeof(name);
    EXPECT_EQ(getsockopt(socket_, SOL_SOCKET, SO_BINDTODEVICE, name, &size), 0);
    return name;
  }

 private:
  int socket_;
  int port_ = 0;
};

// Returns an IPv4 address of this host that is no loopback address; "" if there is none.
std::string OwnAddress() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    const auto& ip = reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr;
    char text[INET_ADDRSTRLEN];
    if ((ntohl(ip.s_addr) >> 24) != IN_LOOPBACKNET) found = inet_ntop(AF_INET, &ip, text, sizeof(text));
  }
  freeifaddrs(all);
  return found;
}

// Connects to an IPv4 address at a port. Returns -1 if nobody accepts.
int Connected(const char* host, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, host, &address.sin_addr);
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return client;
  close(client);
  return -1;
}

bool Connects(const char* host, int port) {
  const int client = Connected(host, port);
  if (client >= 0) close(client);
  return client >= 0;
}

class Confine : public ::testing::TestWithParam<int> {};

TEST_P(Confine, TheServerServesTheLoopbackInterfaceAlone) {
  Server server(GetParam());
  server.Listen();
  EXPECT_EQ(server.Device(), "");
  ASSERT_TRUE(ConfineToLoopback(server.port(), Clock::now(), kNever).ok());
  EXPECT_EQ(server.Device(), "lo");
  EXPECT_TRUE(Connects("127.0.0.1", server.port()));
}

TEST_P(Confine, AnotherSocketOfThisUserMayListenBesideIt) {
  Server server(GetParam());
  server.Listen();
  ASSERT_TRUE(ConfineToLoopback(server.port(), Clock::now(), kNever).ok());
  const int beside = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  ASSERT_EQ(setsockopt(beside, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)), 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(server.port()));
  inet_pton(AF_INET, "127.0.0.7", &address.sin_addr);
  EXPECT_EQ(bind(beside, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(beside, 1), 0);
  EXPECT_TRUE(Connects("127.0.0.7", server.port()));
  const int accepted = accept(beside, nullptr, nullptr);
  EXPECT_GE(accepted, 0) << "the socket with an address of its own gets the connection";
  close(accepted);
  close(beside);
}

TEST_P(Confine, AServerThatListensLaterIsFound) {
  Server server(GetParam());
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    server.Listen();
  });
  EXPECT_TRUE(ConfineToLoopback(server.port(), Clock::now() + std::chrono::seconds(10), kNever).ok());
  later.join();
  EXPECT_EQ(server.Device(), "lo");
}

TEST_P(Confine, ConnectionsOverTheLoopbackInterfaceAreKept) {
  Server server(GetParam());
  server.Listen();
  const int client = Connected("127.0.0.1", server.port());
  const int accepted = accept(server.get(), nullptr, nullptr);
  ASSERT_TRUE(ConfineToLoopback(server.port(), Clock::now(), kNever).ok());
  ShutConnectionsFromElsewhere(server.port(), Clock::now());
  char byte = 'a';
  EXPECT_EQ(write(client, &byte, 1), 1);
  EXPECT_EQ(read(accepted, &byte, 1), 1);
  close(accepted);
  close(client);
}

TEST_P(Confine, ConnectionsFromElsewhereAreShut) {
  const std::string elsewhere =
      OwnAddress();  // its packets come over lo; the peer's address is no loopback address
  if (elsewhere.empty()) GTEST_SKIP() << "this host has no address besides those of lo";
  Server server(GetParam());
  server.Listen();
  const int client = Connected(elsewhere.c_str(), server.port());
  const int accepted = accept(server.get(), nullptr, nullptr);
  ShutConnectionsFromElsewhere(server.port(), Clock::now());
  char byte;
  EXPECT_EQ(recv(client, &byte, 1, MSG_DONTWAIT), 0) << "it sees the end of the connection";
  close(accepted);
  close(client);
}

INSTANTIATE_TEST_SUITE_P(Families, Confine, ::testing::Values(AF_INET, AF_INET6));

TEST(Confine, APortWithoutAServerIsAnErrorInTimeOrWhenItIsStopped) {
  Server server(AF_INET);  // bound, and does not listen
  const auto begin = Clock::now();
  const Status status = ConfineToLoopback(server.port(), begin + std::chrono::milliseconds(20), kNever);
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(20));
  std::atomic<bool> stop{false};
  std::thread stopping([&] { stop = true; });
  EXPECT_FALSE(
      ConfineToLoopback(server.port(), begin + std::chrono::hours(1), [&] { return stop.load(); }).ok());
  stopping.join();
}

}  // namespace
}  // namespace tf_strategies

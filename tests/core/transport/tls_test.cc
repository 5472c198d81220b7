// What TLS adds to the TCP transport: who is let in, what is refused and why, and that nothing can be read or changed on the way.
// That it carries messages as every transport does is tested in transport_test.cc and tcp_transport_test.cc.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/transport/tcp/tcp_transport.h"
#include "tests/core/support/sockets.h"
#include "tests/core/transport/certificates.h"
#include "tests/core/transport/open_wires.h"

namespace tf_strategies {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// Drives transports from this thread until the condition holds, for 20 s at most.
bool Drive(const Transports& transports, const std::function<bool()>& done) {
  const auto end = Clock::now() + seconds(20);
  while (!done() && Clock::now() < end) {
    for (auto& transport : transports) transport->Progress();
  }
  return done();
}

// A reception of one byte: how it ends, with an error if the connection is refused.
struct Waiting {
  char place = 0;
  bool ended = false;
  Status status;
};

void Wait(Transport* transport, int peer, Waiting* waiting) {
  transport->Receive(peer, {1, 1, 0}, &waiting->place, 1, [waiting](const Status& status, const Received&) {
    waiting->ended = true;
    waiting->status = status;
  });
}

// The errors of two ranks with these folders, which must refuse one another.
std::pair<std::string, std::string> Refusals(const std::string& first, const std::string& second) {
  const auto sockets = SocketsOfAll(2);
  Transports transports(2);
  Waiting waiting[2];
  for (int rank : {0, 1}) {
    EXPECT_TRUE(MakeTcpTransport(rank, sockets[rank], {rank == 0 ? first : second}, &transports[rank]).ok());
    Wait(transports[rank].get(), 1 - rank, &waiting[rank]);
  }
  EXPECT_TRUE(Drive(transports, [&] { return waiting[0].ended && waiting[1].ended; }));
  for (const Waiting& each : waiting) EXPECT_EQ(each.status.code(), Code::kUnavailable);
  return {waiting[0].status.message(), waiting[1].status.message()};
}

void ExpectPart(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Tls, ACertificateOfAnotherAuthorityIsRefused) {
  for (const bool server_is_wrong : {false, true}) {
    const std::string good = CertificateFolder(), wrong = CertificateFolder("second");
    const auto [first, second] = server_is_wrong ? Refusals(wrong, good) : Refusals(good, wrong);
    // The client looks at the server's certificate first.
    ExpectPart(second,
               "the connection to rank 0 broke: the TLS handshake failed: the certificate of the peer is "
               "refused: self");
    ExpectPart(first, "the connection to rank 1 broke: the TLS handshake failed: TLS: ");
    ExpectPart(first, "unknown ca");
  }
}

TEST(Tls, AnExpiredCertificateIsNamedAsSuchOnBothEnds) {
  const std::string expired = CertificateFolder("first", "DNS:tf-strategies", -1);
  const auto [client, server] = Refusals(CertificateFolder(), expired);
  ExpectPart(client, "the certificate of the peer is refused: certificate has expired");
  ExpectPart(server, "certificate expired");
}

TEST(Tls, ACertificateOfAnotherNameIsRefusedByBothEnds) {
  const std::string other = CertificateFolder("first", "DNS:example.org");
  ExpectPart(Refusals(CertificateFolder(), other).first, "ostname mismatch");
  ExpectPart(Refusals(other, CertificateFolder()).second, "ostname mismatch");
}

TEST(Tls, FilesThatCannotBeUsedAreNamed) {
  TemporaryFolder folder;
  for (const char* file : {"ca.crt", "task.crt", "task.key"}) {
    std::unique_ptr<Transport> transport;
    const auto [mine, theirs] = ConnectedSockets();
    const Status status = MakeTcpTransport(0, {-1, mine}, {folder.path()}, &transport);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    ExpectPart(status.message(), folder.path() + "/" + file + " cannot be used for TLS");
    close(theirs);
    ASSERT_EQ(std::system(("cp " + CertificateFolder() + "/" + file + " " + folder.path()).c_str()), 0);
  }
  ASSERT_EQ(std::system(("cp " + CertificateFolder("second") + "/task.key " + folder.path()).c_str()), 0);
  std::unique_ptr<Transport> transport;
  ExpectPart(MakeTcpTransport(0, {-1}, {folder.path()}, &transport).message(), "key values mismatch");
}

// Rank 0 with TLS, whose peer is the test.
class WithStranger : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto [mine, theirs] = ConnectedSockets();
    transports_.resize(1);
    ASSERT_TRUE(
        MakeTcpTransport(0, {-1, mine}, {CertificateFolder(), milliseconds(300)}, &transports_[0]).ok());
    stranger_ = theirs;
  }
  void TearDown() override { close(stranger_); }

  std::string Verdict() {
    Waiting waiting;
    Wait(transports_[0].get(), 1, &waiting);
    EXPECT_TRUE(Drive(transports_, [&] { return waiting.ended; }));
    EXPECT_EQ(waiting.status.code(), Code::kUnavailable);
    return waiting.status.message();
  }

  // The program openssl as the peer.
  std::string VerdictOnClient(const std::string& options) {
    sockaddr_in address;
    const int listener = Listen(&address);
    FILE* const client =
        popen(("exec openssl s_client -connect 127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + " " +
               options + " >/dev/null 2>&1")
                  .c_str(),
              "w");
    const int mine = accept(listener, nullptr, nullptr);
    close(listener);
    EXPECT_TRUE(
        MakeTcpTransport(0, {-1, mine}, {CertificateFolder(), milliseconds(5000)}, &transports_[0]).ok());
    const std::string verdict = Verdict();
    transports_[0].reset();
    pclose(client);
    transports_.clear();
    return verdict;
  }

  Transports transports_;
  int stranger_ = -1;
};

TEST_F(WithStranger, APeerThatSaysNothingIsGivenUpAtTheDeadline) {
  for (const std::string& said : {std::string(), std::string("\x16\x03\x01\x02\x00\x01\x00", 7)}) {
    const auto start = Clock::now();
    EXPECT_EQ(send(stranger_, said.data(), said.size(), MSG_NOSIGNAL), static_cast<ssize_t>(said.size()));
    ExpectPart(Verdict(), "the connection to rank 1 broke: the TLS handshake did not end in time");
    EXPECT_GE(Clock::now() - start, milliseconds(250));
    EXPECT_LT(Clock::now() - start, seconds(5));
    TearDown();
    SetUp();
  }
}

TEST_F(WithStranger, AWaitDuringTheHandshakeSleeps) {
  char data = 0;
  transports_[0]->Send(1, {1, 1, 0}, &data, 1, [](const Status&) {});
  transports_[0]->Progress();
  ASSERT_TRUE(transports_[0]->Arm());
  const auto start = Clock::now();
  transports_[0]->Wait(50);
  EXPECT_GE(Clock::now() - start, milliseconds(45));
}

TEST_F(WithStranger, APeerWithoutTlsIsRefused) {
  const auto [mine, theirs] = ConnectedSockets();
  Transports plain(1);
  close(stranger_);
  ASSERT_TRUE(MakeTcpTransport(0, {-1, mine}, {CertificateFolder()}, &transports_[0]).ok());
  ASSERT_TRUE(MakeTcpTransport(1, {theirs, -1}, &plain[0]).ok());
  stranger_ = -1;
  std::vector<char> data(100, 'x');
  plain[0]->Send(0, {1, 1, 0}, data.data(), data.size(), [](const Status&) {});
  plain[0]->Progress();
  ExpectPart(Verdict(), "the TLS handshake failed: TLS: ");
  Waiting waiting;
  Wait(plain[0].get(), 0, &waiting);
  transports_.clear();
  ASSERT_TRUE(Drive(plain, [&] { return waiting.ended; }));
  EXPECT_EQ(waiting.status.code(), Code::kUnavailable);
}

TEST_F(WithStranger, AClientOfTls12IsRefused) {
  const std::string folder = CertificateFolder();
  ExpectPart(VerdictOnClient("-tls1_2 -cert " + folder + "/task.crt -key " + folder + "/task.key"),
             "unsupported protocol");
}

TEST_F(WithStranger, AClientWithoutACertificateIsRefused) {
  ExpectPart(VerdictOnClient("-tls1_3"), "peer did not return a certificate");
}

// Two ranks whose bytes pass through the test.
class Relayed : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    transports_.resize(2);
    for (int rank : {0, 1}) {
      std::tie(ends[rank], relay_[rank]) = ConnectedSockets();
      std::vector<int> sockets(2, -1);
      sockets[1 - rank] = ends[rank];
      ASSERT_TRUE(MakeTcpTransport(rank, sockets, {CertificateFolder()}, &transports_[rank]).ok());
    }
  }
  void TearDown() override {
    transports_.clear();
    for (const int each : relay_) close(each);
  }

  bool DriveRelayed(const std::function<bool()>& done) {
    return Drive(transports_, [&] {
      for (int from : {0, 1}) Pass(from);
      return done();
    });
  }

  // Sends a message of rank 0 to rank 1. Returns the outcomes of both.
  std::pair<Status, Status> SendOne(const std::vector<char>& data, std::vector<char>* place) {
    Status sent, received;
    int ended = 0;
    place->assign(data.size(), 0);
    transports_[0]->Send(1, {1, 2, 0}, data.data(), data.size(), [&](const Status& status) {
      sent = status;
      ++ended;
    });
    transports_[1]->Receive(0, {1, 2, 0}, place->data(), place->size(),
                            [&](const Status& status, const Received&) {
                              received = status;
                              ended += 2;
                            });
    EXPECT_TRUE(DriveRelayed([&] { return ended >= 2; }));
    transports_[0]->Cancel();
    return {sent, received};
  }

  void Pass(int from) {
    char bytes[4096];
    const ssize_t got = recv(relay_[from], bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got <= 0) return;
    if (from == 0) {
      if (flip_at_ >= seen_.size() && flip_at_ < seen_.size() + static_cast<size_t>(got)) {
        bytes[flip_at_ - seen_.size()] ^= 1;
      }
      seen_.append(bytes, static_cast<size_t>(got));
    }
    EXPECT_EQ(send(relay_[1 - from], bytes, static_cast<size_t>(got), MSG_NOSIGNAL), got);
  }

  Transports transports_;
  int relay_[2] = {-1, -1};
  std::string seen_;  // from rank 0
  size_t flip_at_ = SIZE_MAX;
};

TEST_F(Relayed, NothingOfAMessageCanBeReadOnTheWay) {
  const std::string secret = "gradients are nobody's business";
  std::vector<char> data, place;
  while (data.size() < 200000) data.insert(data.end(), secret.begin(), secret.end());
  const auto [sent, received] = SendOne(data, &place);
  EXPECT_TRUE(received.ok()) << received.ToString();
  EXPECT_EQ(place, data);
  EXPECT_GT(seen_.size(), data.size());
  EXPECT_EQ(seen_.find(secret.substr(0, 8)), std::string::npos);
  ASSERT_TRUE(sent.ok());
}

TEST_F(Relayed, OneChangedBitLosesTheConnection) {
  flip_at_ = 150000;
  std::vector<char> place;
  const auto [sent, received] = SendOne(std::vector<char>(200000, 'x'), &place);
  EXPECT_EQ(received.code(), Code::kUnavailable);
  ExpectPart(received.message(), "the connection to rank 0 broke: TLS: ");
  ExpectPart(received.message(), "bad record mac");
}

// As the end of a process does, which says no farewell.
TEST(Tls, APeerThatIsKilledIsNoticedAndAHalfMessageIsNone) {
  const auto sockets = SocketsOfAll(2);
  const int of_killed = dup(sockets[1][0]);
  Transports transports(2);
  for (int rank : {0, 1}) {
    ASSERT_TRUE(MakeTcpTransport(rank, sockets[rank], {CertificateFolder()}, &transports[rank]).ok());
  }
  std::vector<char> data(64 << 20, 'x'), place(data.size());
  Status received;
  bool ended = false;
  transports[1]->Send(0, {1, 1, 0}, data.data(), data.size(), [](const Status&) {});
  transports[0]->Receive(1, {1, 1, 0}, place.data(), place.size(),
                         [&](const Status& status, const Received&) {
                           received = status;
                           ended = true;
                         });
  ASSERT_TRUE(Drive(transports, [&] { return place[1 << 20] == 'x'; }));
  shutdown(of_killed, SHUT_RDWR);
  ASSERT_TRUE(Drive(transports, [&] { return ended; }));
  EXPECT_EQ(received.code(), Code::kUnavailable);
  ExpectPart(received.message(), "the connection to rank 1 broke: ");
  EXPECT_NE(place.back(), 'x');
  close(of_killed);
}

// Each rank sleeps whenever it may: nothing that matters lies in OpenSSL's buffers then.
TEST(Tls, NobodySleepsWhileSomethingHasCome) {
  const Transports transports = Tcp(2, CertificateFolder());
  constexpr int kMessages = 400;
  const auto size_of = [](int message) { return static_cast<size_t>(message % 9 == 0 ? 300000 : message); };
  int slept_long[2] = {0, 0};
  const auto run = [&](int rank) {
    Transport& mine = *transports[rank];
    std::vector<std::vector<char>> sent, received(kMessages);
    int ended = 0;
    for (int i = 0; i < kMessages; ++i) {
      sent.emplace_back(size_of(i), static_cast<char>(i + rank));
      received[i].resize(size_of(i));
    }
    for (int i = 0; i < kMessages; ++i) {
      const Tag tag{1, static_cast<uint32_t>(i), 0};
      mine.Receive(1 - rank, tag, received[i].data(), received[i].size(),
                   [&](const Status& status, const Received&) { ended += status.ok(); });
      mine.Send(1 - rank, tag, sent[i].data(), sent[i].size(),
                [&](const Status& status) { ended += status.ok(); });
      const auto end = Clock::now() + seconds(20);
      while (ended < 2 * (i + 1) - 20 && Clock::now() < end) {
        if (mine.Progress() || !mine.Arm()) continue;
        const auto start = Clock::now();
        mine.Wait(4000);
        slept_long[rank] += Clock::now() - start > seconds(3);
      }
    }
    const auto end = Clock::now() + seconds(20);
    while (ended < 2 * kMessages && Clock::now() < end) mine.Progress();
    EXPECT_EQ(ended, 2 * kMessages);
    for (int i = 0; i < kMessages; ++i) {
      EXPECT_EQ(received[i], std::vector<char>(size_of(i), static_cast<char>(i + 1 - rank))) << i;
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  EXPECT_EQ(slept_long[0] + slept_long[1], 0);
}

}  // namespace
}  // namespace tf_strategies

// A member of the group that lies, over the TCP transport: whatever it says, or leaves unsaid, does no harm or ends the connection, and
// costs little memory.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/transport/tcp/frame.h"
#include "ops/transport/tcp/tcp_transport.h"
#include "tests/core/support/resident_bytes.h"
#include "tests/core/support/sanitized.h"
#include "tests/core/support/sockets.h"

namespace tf_strategies {
namespace {

using tcp::FrameHead;
using tcp::FrameKind;

constexpr size_t kLong = 1 << 20;
constexpr uint32_t kKey = 4;

struct Outcome {
  int ended = 0;
  Status status;
  size_t bytes = 0;
};

class TcpAttack : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto [mine, theirs] = ConnectedSockets();
    ASSERT_TRUE(MakeTcpTransport(0, {-1, mine}, &transport_).ok());
    liar_ = theirs;
  }
  void TearDown() override {
    transport_.reset();
    Leave();
  }

  void Leave() {
    if (liar_ >= 0) close(liar_);
    liar_ = -1;
  }

  bool Drive(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done() && std::chrono::steady_clock::now() < end) transport_->Progress();
    return done();
  }

  void Say(const std::string& bytes) {
    size_t said = 0;
    EXPECT_TRUE(Drive([&] {
      const ssize_t sent = send(liar_, bytes.data() + said, bytes.size() - said, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) said += static_cast<size_t>(sent);
      return said == bytes.size();
    }));
  }

  static std::string Head(FrameKind kind, uint32_t key, uint64_t bytes) {
    FrameHead head;
    head.kind = kind;
    head.key = key;
    head.bytes = bytes;
    return std::string(reinterpret_cast<const char*>(&head), sizeof(head));
  }

  // The outcome is to live until it has ended.
  void Receive(uint32_t message, std::vector<char>* place, Outcome* outcome) {
    transport_->Receive(1, {0, message, 0}, place->data(), place->size(),
                        [outcome](const Status& status, const Received& received) {
                          ++outcome->ended;
                          outcome->status = status;
                          outcome->bytes = received.bytes;
                        });
  }

  void Send(uint32_t message, const std::vector<char>& data, Outcome* outcome) {
    transport_->Send(1, {0, message, 0}, data.data(), data.size(), [outcome](const Status& status) {
      ++outcome->ended;
      outcome->status = status;
    });
  }

  // That the connection carries messages still.
  void ExpectThatItGoesOn() {
    std::vector<char> place(3);
    Outcome outcome;
    Receive(99, &place, &outcome);
    Say(Head(FrameKind::kEager, 99, 3) + "yes");
    ASSERT_TRUE(Drive([&] { return outcome.ended == 1; }));
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    EXPECT_EQ(std::string(place.begin(), place.end()), "yes");
  }

  std::unique_ptr<Transport> transport_;
  int liar_ = -1;
};

TEST_F(TcpAttack, DataThatNobodyAnnouncedWaitForTheirReception) {
  const std::string payload(kLong, 'x');
  Say(Head(FrameKind::kData, kKey, kLong) + payload);
  ExpectThatItGoesOn();
  std::vector<char> place(kLong);
  Outcome outcome;
  Receive(kKey, &place, &outcome);
  ASSERT_EQ(outcome.ended, 1);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  EXPECT_TRUE(std::string(place.begin(), place.end()) == payload);
}

TEST_F(TcpAttack, MessagesThatAreLongerThanTheirPlaceWriteNothing) {
  for (const FrameKind kind : {FrameKind::kEager, FrameKind::kData}) {
    for (const bool early : {false, true}) {
      const size_t bytes = kind == FrameKind::kEager ? 1000 : kLong;
      std::vector<char> memory(bytes), place(10);
      Outcome outcome;
      if (!early) Receive(kKey, &place, &outcome);
      Say(Head(kind, kKey, bytes) + std::string(bytes, 'x'));
      ExpectThatItGoesOn();
      if (early) Receive(kKey, &place, &outcome);
      ASSERT_EQ(outcome.ended, 1);
      EXPECT_EQ(outcome.status.code(), Code::kMismatch) << outcome.status.ToString();
      EXPECT_EQ(place, std::vector<char>(10));
    }
  }
}

TEST_F(TcpAttack, AnnouncementsThatAreLongerThanTheirPlaceAreAMismatch) {
  std::vector<char> place(kLong);
  Outcome outcome;
  Receive(kKey, &place, &outcome);
  Say(Head(FrameKind::kAnnounce, kKey, tcp::kMostBytes));
  ASSERT_TRUE(Drive([&] { return outcome.ended == 1; }));
  EXPECT_EQ(outcome.status.code(), Code::kMismatch) << outcome.status.ToString();
  ExpectThatItGoesOn();
}

TEST_F(TcpAttack, KeysOfInstancesThatCannotBeAreKeptForNobody) {
  Say(Head(FrameKind::kEager, UINT32_MAX, 3) + "abc" + Head(FrameKind::kAnnounce, UINT32_MAX, kLong) +
      Head(FrameKind::kReady, UINT32_MAX - 1, kLong));
  ExpectThatItGoesOn();
}

TEST_F(TcpAttack, APlaceThatIsNamedTwiceGetsOneMessageEach) {
  Say(Head(FrameKind::kReady, kKey, tcp::kEagerBytes + 1) + Head(FrameKind::kReady, kKey, kLong));
  ExpectThatItGoesOn();
  const std::vector<char> data(kLong, 'x');
  Outcome outcomes[3];
  for (Outcome& outcome : outcomes) Send(kKey, data, &outcome);
  std::vector<char> heard(3 * kLong);
  size_t bytes = 0;
  ASSERT_TRUE(Drive([&] {
    const ssize_t got = recv(liar_, heard.data() + bytes, heard.size() - bytes, MSG_DONTWAIT);
    if (got > 0) bytes += static_cast<size_t>(got);
    return bytes == 2 * (kLong + sizeof(FrameHead)) + sizeof(FrameHead);
  })) << bytes;
  FrameHead last;
  std::memcpy(&last, heard.data() + 2 * (kLong + sizeof(FrameHead)), sizeof(last));
  EXPECT_EQ(last.kind, FrameKind::kAnnounce);
  EXPECT_EQ(outcomes[0].ended + outcomes[1].ended, 2);
  EXPECT_EQ(outcomes[2].ended, 0);
}

TEST_F(TcpAttack, APeerThatLeavesWithinAHeadOrAPayloadEndsAllReceptions) {
  const std::string data = Head(FrameKind::kData, kKey, kLong);
  for (const std::string& last :
       {std::string(), data.substr(0, 1), data.substr(0, 23), data, data + "x",
        data + std::string(kLong - 1, 'x'), Head(FrameKind::kAnnounce, kKey, kLong)}) {
    std::vector<char> place(kLong), other(8);
    Outcome outcomes[2];
    Receive(kKey, &place, &outcomes[0]);
    Receive(5, &other, &outcomes[1]);
    Say(last);
    Leave();
    ASSERT_TRUE(Drive([&] { return outcomes[0].ended + outcomes[1].ended == 2; })) << last.size();
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.ended, 1);
      EXPECT_EQ(outcome.status.code(), Code::kUnavailable) << outcome.status.ToString();
      EXPECT_NE(outcome.status.message().find("rank 1"), std::string::npos) << outcome.status.message();
    }
    EXPECT_EQ(other, std::vector<char>(8));
    TearDown();
    SetUp();
  }
}

// It says that it sends no more, and would go on reading.
TEST_F(TcpAttack, AHalfOpenConnectionEndsSendsAsWell) {
  const std::vector<char> data(kLong, 'x');
  std::vector<char> place(10);
  Outcome sent, received, later;
  Send(kKey, data, &sent);
  Receive(kKey, &place, &received);
  shutdown(liar_, SHUT_WR);
  ASSERT_TRUE(Drive([&] { return sent.ended + received.ended == 2; }));
  EXPECT_EQ(sent.status.code(), Code::kUnavailable) << sent.status.ToString();
  EXPECT_EQ(received.status.code(), Code::kUnavailable) << received.status.ToString();
  Send(kKey, data, &later);
  EXPECT_EQ(later.status.code(), Code::kUnavailable) << later.status.ToString();
}

// The bytes stay where the sender has them. A rank that waits for the sends has a deadline (lying_member_test.cc).
TEST_F(TcpAttack, APeerThatNeverReadsCostsNoCopies) {
  constexpr int kSends = 200;
  const std::vector<char> data(kLong, 'x');
  for (int i = 0; i < kSends; ++i) Say(Head(FrameKind::kReady, kKey, kLong));
  std::vector<Outcome> outcomes(kSends);
  const int64_t before = ResidentBytes();
  for (Outcome& outcome : outcomes) Send(kKey, data, &outcome);
  for (int i = 0; i < 1000; ++i) transport_->Progress();
  EXPECT_LT(ResidentBytes() - before, int64_t{kSanitized ? 32 : 8} << 20);
  EXPECT_EQ(outcomes.back().ended, 0);
  ExpectThatItGoesOn();
  Leave();
  ASSERT_TRUE(Drive([&] { return outcomes.back().ended == 1; }));
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.ended, 1);
}

// Each head is right, and nothing follows it.
TEST_F(TcpAttack, TheLengthOfAMessageAloneTakesNoMemory) {
  const int64_t before = ResidentBytes();
  Say(Head(FrameKind::kData, kKey, tcp::kMostEarlyBytes) + "x");
  for (int i = 0; i < 100; ++i) transport_->Progress();
  EXPECT_LT(ResidentBytes() - before, int64_t{kSanitized ? 128 : 8} << 20);
  Leave();
  std::vector<char> place(1);
  Outcome outcome;
  Receive(kKey, &place, &outcome);
  ASSERT_TRUE(Drive([&] { return outcome.ended == 1; }));
  EXPECT_EQ(outcome.status.code(), Code::kUnavailable) << outcome.status.ToString();
}

}  // namespace
}  // namespace tf_strategies

// Peers of the TCP transport that send what no peer sends: each ends its connection, or waits, and takes little memory.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ops/transport/tcp/frame.h"
#include "ops/transport/tcp/tcp_transport.h"
#include "tests/core/support/resident_bytes.h"
#include "tests/core/support/sanitized.h"
#include "tests/core/support/sockets.h"
#include "tests/core/transport/drive.h"

namespace tf_strategies {
namespace {

using tcp::FrameHead;
using tcp::FrameKind;

constexpr size_t kLong = 1 << 20;

// A transport of rank 0 whose peer is the test.
class WithStranger : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto [mine, theirs] = ConnectedSockets();
    ASSERT_TRUE(MakeTcpTransport(0, {-1, mine}, &transport_).ok());
    stranger_ = theirs;
  }
  void TearDown() override { close(stranger_); }

  void Say(const void* data, size_t bytes) {
    const char* from = static_cast<const char*>(data);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (bytes > 0 && std::chrono::steady_clock::now() < end) {
      const ssize_t sent = send(stranger_, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        from += sent;
        bytes -= static_cast<size_t>(sent);
      } else if (errno != EAGAIN) {
        return;
      }
      transport_->Progress();
    }
  }

  void SayHead(FrameKind kind, uint32_t key, uint64_t bytes) {
    FrameHead head;
    head.kind = kind;
    head.key = key;
    head.bytes = bytes;
    Say(&head, sizeof(head));
  }

  // The error that ends a reception of the peer.
  Status Verdict() {
    Status verdict;
    bool ended = false;
    char place = 0;
    transport_->Receive(1, {9, 9, 0}, &place, 1, [&](const Status& status, const Received&) {
      verdict = status;
      ended = true;
    });
    EXPECT_TRUE(Drive({transport_.get()}, [&] { return ended; })) << "nothing ended";
    return verdict;
  }

  std::unique_ptr<Transport> transport_;
  int stranger_ = -1;
};

TEST_F(WithStranger, HeadsThatNoPeerSendsEndTheConnection) {
  struct Head {
    FrameKind kind;
    uint64_t bytes;
  };
  for (const Head& head :
       {Head{FrameKind::kEager, tcp::kEagerBytes + 1}, Head{FrameKind::kEager, UINT64_MAX},
        Head{FrameKind::kAnnounce, UINT64_MAX}, Head{FrameKind::kAnnounce, 5}, Head{FrameKind::kReady, 5},
        Head{FrameKind::kData, 5}, Head{FrameKind::kData, uint64_t{1} << 62},
        Head{FrameKind::kData, tcp::kMostEarlyBytes + 1}, Head{static_cast<FrameKind>(0), 0},
        Head{static_cast<FrameKind>(77), 100000}}) {
    SayHead(head.kind, 1, head.bytes);
    const Status verdict = Verdict();
    EXPECT_FALSE(verdict.ok());
    EXPECT_NE(verdict.message().find("rank 1"), std::string::npos) << verdict.message();
    TearDown();
    SetUp();
  }
}

TEST_F(WithStranger, RandomBytesEndTheConnectionOrWait) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<char> bytes(random() % 2000);
    for (char& each : bytes) each = static_cast<char>(random());
    Say(bytes.data(), bytes.size());
    close(stranger_);
    stranger_ = -1;
    EXPECT_FALSE(Verdict().ok());
    SetUp();
  }
}

TEST_F(WithStranger, MessagesThatNobodyAsksForAreBounded) {
  const std::vector<char> payload(tcp::kEagerBytes);
  const size_t most = tcp::kMostEarlyBytes / payload.size();
  for (size_t i = 0; i <= most; ++i) {
    SayHead(FrameKind::kEager, static_cast<uint32_t>(i % 7), payload.size());
    Say(payload.data(), payload.size());
  }
  const Status verdict = Verdict();
  EXPECT_EQ(verdict.code(), Code::kResourceExhausted) << verdict.ToString();
}

TEST_F(WithStranger, FramesThatNobodyAsksForAreBounded) {
  for (const FrameKind kind : {FrameKind::kAnnounce, FrameKind::kReady, FrameKind::kEager}) {
    FrameHead head;
    head.kind = kind;
    head.key = 3;
    head.bytes = kind == FrameKind::kEager ? 0 : kLong;
    const std::vector<FrameHead> heads(tcp::kMostEarlyFrames + 1, head);
    Say(heads.data(), heads.size() * sizeof(FrameHead));
    const Status verdict = Verdict();
    EXPECT_EQ(verdict.code(), Code::kResourceExhausted) << verdict.ToString();
    TearDown();
    SetUp();
  }
}

// As many keys as frames: what is kept for a key must not be many times a frame.
TEST_F(WithStranger, FramesOfDifferentKeysTakeLittleMemory) {
  std::vector<FrameHead> heads(tcp::kMostEarlyFrames);
  for (size_t i = 0; i < heads.size(); ++i) {
    heads[i].kind = i % 2 ? FrameKind::kAnnounce : FrameKind::kEager;
    heads[i].bytes = i % 2 ? kLong : 0;
    heads[i].key = static_cast<uint32_t>(i);
  }
  const int64_t before = ResidentBytes();
  Say(heads.data(), heads.size() * sizeof(FrameHead));
  for (int i = 0; i < 1000; ++i) transport_->Progress();
  const int64_t taken = ResidentBytes() - before;
  EXPECT_LT(taken, static_cast<int64_t>(heads.size()) * (kSanitized ? 2048 : 512));
  SayHead(FrameKind::kAnnounce, 0, kLong);
  EXPECT_EQ(Verdict().code(), Code::kResourceExhausted) << "the frames were not kept";
}

TEST_F(WithStranger, DataOfAnotherLengthThanThePlaceIsAMismatch) {
  std::vector<char> place(kLong);
  Status outcome;
  bool ended = false;
  transport_->Receive(1, {0, 4, 0}, place.data(), place.size(), [&](const Status& status, const Received&) {
    outcome = status;
    ended = true;
  });
  const std::vector<char> payload(2 * kLong, 'x');
  SayHead(FrameKind::kData, 4, payload.size());
  Say(payload.data(), payload.size());
  ASSERT_TRUE(Drive({transport_.get()}, [&] { return ended; }));
  EXPECT_EQ(outcome.code(), Code::kMismatch) << outcome.ToString();
  EXPECT_TRUE(place == std::vector<char>(kLong)) << "something was written";
}

TEST_F(WithStranger, DataOfAnotherLengthThanAnnouncedEndTheConnection) {
  const std::vector<char> payload(100000, 'x');
  SayHead(FrameKind::kAnnounce, 4, kLong);
  SayHead(FrameKind::kData, 4, payload.size());
  Say(payload.data(), payload.size());
  const Status verdict = Verdict();
  EXPECT_NE(verdict.message().find("1048576 bytes were announced, and 100000 came"), std::string::npos)
      << verdict.message();
}

TEST_F(WithStranger, DataOfAnotherLengthThanAnnouncedEndTheConnectionAlsoWhenTheyAreAwaited) {
  std::vector<char> place(kLong);
  Status outcome;
  transport_->Receive(1, {0, 4, 0}, place.data(), place.size(),
                      [&](const Status& status, const Received&) { outcome = status; });
  const std::vector<char> payload(100000, 'x');
  SayHead(FrameKind::kAnnounce, 4, kLong);
  SayHead(FrameKind::kData, 4, payload.size());
  Say(payload.data(), payload.size());
  EXPECT_EQ(Verdict().code(), Code::kInvalidArgument);
  EXPECT_NE(outcome.message().find("1048576 bytes were announced, and 100000 came"), std::string::npos)
      << outcome.message();
  EXPECT_TRUE(place == std::vector<char>(kLong)) << "something was written";
}

TEST_F(WithStranger, DataThatAreTooLongAreAMismatchAsSoonAsTheirHeadIsThere) {
  char place = 0;
  Status outcome;
  transport_->Receive(1, {0, 4, 0}, &place, 1,
                      [&](const Status& status, const Received&) { outcome = status; });
  SayHead(FrameKind::kData, 4, tcp::kMostBytes);
  ASSERT_TRUE(Drive({transport_.get()}, [&] { return !outcome.ok(); })) << "a terabyte is waited for";
  EXPECT_EQ(outcome.code(), Code::kMismatch) << outcome.ToString();
}

// The payload of the first message is half there when a reception takes its announcement and has no room for it. The second
// message, which is longer, must not take the payload for its own.
TEST_F(WithStranger, APayloadIsNotTakenForThatOfALongerMessage) {
  const std::vector<char> payload(kLong, 'x');
  SayHead(FrameKind::kAnnounce, 4, kLong);
  SayHead(FrameKind::kAnnounce, 4, 2 * kLong);
  SayHead(FrameKind::kData, 4, kLong);
  Say(payload.data(), kLong / 2);
  for (int i = 0; i < 100; ++i) transport_->Progress();
  std::vector<Status> outcomes;
  const auto note = [&](const Status& status, const Received&) { outcomes.push_back(status); };
  char small = 0;
  transport_->Receive(1, {0, 4, 0}, &small, 1, note);
  ASSERT_EQ(outcomes.size(), 1);
  EXPECT_EQ(outcomes[0].code(), Code::kMismatch);
  Say(payload.data(), kLong / 2);
  for (int i = 0; i < 100; ++i) transport_->Progress();
  std::vector<char> place(2 * kLong);
  transport_->Receive(1, {0, 4, 0}, place.data(), place.size(), note);
  EXPECT_EQ(outcomes.size(), 1) << "the second message has not come";
  close(stranger_);
  stranger_ = -1;
  ASSERT_TRUE(Drive({transport_.get()}, [&] { return outcomes.size() == 2; }));
  EXPECT_EQ(outcomes[1].code(), Code::kUnavailable) << outcomes[1].ToString();
  EXPECT_TRUE(place == std::vector<char>(2 * kLong)) << "something was written";
}

}  // namespace
}  // namespace tf_strategies

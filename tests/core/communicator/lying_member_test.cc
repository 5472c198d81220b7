// A member of the group that lies or is silent, over the TCP transport: the collective ends with an error that names it.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/communicator/communicator.h"
#include "ops/transport/tcp/frame.h"
#include "ops/transport/tcp/tcp_transport.h"
#include "tests/core/support/group.h"

namespace tf_strategies {
namespace {

using tcp::FrameHead;
using testing::InputOf;
using testing::Outcome;
using testing::RequestFor;

constexpr int64_t kCount = 1000;

// A communicator of rank 0, whose only peer is the test.
class LyingMember : public ::testing::Test {
 protected:
  void SetUp() override {
    int sockets[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    liar_ = sockets[1];
    const timeval patience{20, 0};
    setsockopt(liar_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(liar_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    ASSERT_TRUE(MakeTcpTransport(0, {-1, sockets[0]}, &transport_).ok());
  }
  void TearDown() override {
    communicator_.reset();
    close(liar_);
  }

  void Open(double timeout_seconds) {
    CommunicatorOptions options;
    options.algorithm = "recursive_doubling";
    options.timeout_seconds = timeout_seconds;
    options.verdict_seconds = 0.1;
    options.peer_names = {"worker 0 (a:1)", "worker 1 (b:2)"};
    communicator_ = std::make_unique<Communicator>(std::move(transport_), options, [](const Failure&) {});
  }

  // The first frame of the rank, of which a right answer has the same head and payload.
  std::string Hear() {
    FrameHead head;
    EXPECT_EQ(recv(liar_, &head, sizeof(head), MSG_WAITALL), static_cast<ssize_t>(sizeof(head)));
    std::string frame(reinterpret_cast<const char*>(&head), sizeof(head));
    frame.resize(sizeof(head) + head.bytes);
    const auto bytes = static_cast<ssize_t>(head.bytes);
    EXPECT_EQ(recv(liar_, &frame[sizeof(head)], head.bytes, MSG_WAITALL), bytes);
    return frame;
  }

  // The frame as another head has it.
  template <typename Change>
  static std::string Changed(std::string frame, const Change& change) {
    FrameHead head;
    std::memcpy(&head, frame.data(), sizeof(head));
    change(&head);
    std::memcpy(&frame[0], &head, sizeof(head));
    frame.resize(sizeof(head) + head.bytes);
    return frame;
  }

  void Say(const std::string& bytes) {
    EXPECT_EQ(send(liar_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }

  // Of an all-reduce in which the peer answers as `answer` makes it of the frame that it hears.
  template <typename Answer>
  Status AllReduce(const Answer& answer) {
    Open(20);
    std::vector<float> data = InputOf<float>(0, kCount);
    Outcome outcome;
    communicator_->AllReduce(ReduceOp::kSum, RequestFor(&data, &outcome));
    answer(Hear());
    return outcome.Wait();
  }

  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Communicator> communicator_;
  int liar_ = -1;
};

TEST_F(LyingMember, ThatTellsTheTruthIsBelieved) {
  EXPECT_EQ(AllReduce([&](const std::string& frame) { Say(frame); }).ToString(), "OK");
}

TEST_F(LyingMember, OfAnotherOperationIsAMismatch) {
  const Status status = AllReduce(
      [&](const std::string& frame) { Say(Changed(frame, [](FrameHead* head) { head->signature ^= 1; })); });
  EXPECT_EQ(status.code(), Code::kMismatch) << status.ToString();
  EXPECT_NE(status.message().find("worker 1 (b:2)"), std::string::npos) << status.ToString();
}

TEST_F(LyingMember, OfAnotherLengthIsAMismatch) {
  for (const int more : {-4, 4}) {
    const Status status = AllReduce([&](const std::string& frame) {
      Say(Changed(frame, [&](FrameHead* head) { head->bytes += static_cast<uint64_t>(more); }));
    });
    EXPECT_EQ(status.code(), Code::kMismatch) << status.ToString();
    EXPECT_NE(status.message().find("worker 1 (b:2)"), std::string::npos) << status.ToString();
    TearDown();
    SetUp();
  }
}

TEST_F(LyingMember, ThatSpeaksOfOtherInstancesOnlyIsOverdue) {
  Open(0.5);
  std::vector<float> data = InputOf<float>(0, kCount);
  Outcome outcome;
  communicator_->AllReduce(ReduceOp::kSum, RequestFor(&data, &outcome, 7));
  Say(Changed(Hear(), [](FrameHead* head) { head->key ^= 1u << kMessageBits; }));
  const Status status = outcome.Wait();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.ToString();
  EXPECT_NE(status.message().find("worker 1 (b:2)"), std::string::npos) << status.ToString();
}

TEST_F(LyingMember, ThatNeverReadsIsOverdue) {
  Open(0.5);
  std::vector<float> data = InputOf<float>(0, 4 << 20);
  Outcome outcome;
  const auto start = std::chrono::steady_clock::now();
  communicator_->AllReduce(ReduceOp::kSum, RequestFor(&data, &outcome));
  const Status status = outcome.Wait();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.ToString();
  EXPECT_NE(status.message().find("worker 1 (b:2)"), std::string::npos) << status.ToString();
  communicator_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace tf_strategies

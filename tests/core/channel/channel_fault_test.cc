// A channel whose transport fails, whose peer dies or is not there, or sends what no channel sends: it ends, and names the cause.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "ops/channel/channel.h"
#include "ops/transport/faulty.h"
#include "ops/transport/tcp/tcp_transport.h"
#include "tests/core/channel/channel_pair.h"

namespace tf_strategies {
namespace {

TEST(ChannelFault, AFailedActionEndsBothEndsWithOneCause) {
  for (int faulty : {0, 1}) {
    int failed = 0;
    for (int64_t action = 0; action < 12; ++action) {
      Transports transports = InProcess(1 << 10);
      transports[faulty] =
          MakeFaultyTransport(std::move(transports[faulty]), {Fault::Kind::kFail, action, 0});
      Pair ends(std::move(transports));
      const auto received = Receive(*ends.worker, {1, 1, 0});
      const auto sent = Send(*ends.server, {1, 1, 0}, Pattern(50000, 1));
      const Status status = received->Wait();
      const Status other = sent->Wait();
      if (status.ok()) {
        EXPECT_EQ(*received->data, *sent->data);
        continue;
      }
      ++failed;
      EXPECT_EQ(status.code(), Code::kUnavailable) << action << status.ToString();
      EXPECT_TRUE(Has(status, "failed action " + std::to_string(action))) << status.ToString();
      EXPECT_TRUE(other.ok() || Has(other, "failed action")) << other.ToString();
    }
    EXPECT_GE(failed, 2) << "rank " << faulty;
    EXPECT_LT(failed, 12) << "rank " << faulty;
  }
}

TEST(ChannelFault, APeerThatDiesIsOverdueOrFailedByTheWatcher) {
  int failed = 0;
  for (int64_t action = 0; action < 8; ++action) {
    Transports transports = InProcess(1 << 10);
    transports[1] = MakeFaultyTransport(std::move(transports[1]), {Fault::Kind::kLose, action, 0});
    Pair ends(std::move(transports));
    const auto received = Receive(*ends.worker, {1, 1, 0}, 20);
    const auto sent = Send(*ends.server, {1, 1, 0}, Pattern(50000, 1), 20);
    if (received->Waits(0.2)) {
      ends.worker->Fail(Unavailable("ps 1 (b:2) has died"));
      ++failed;
    }
    const Status status = received->Wait();
    EXPECT_TRUE(status.ok() || Has(status, "has died")) << status.ToString();
    ends.server->Fail(Unavailable("over"));
    EXPECT_NE(sent->Wait().code(), Code::kInternal);
  }
  EXPECT_GE(failed, 2);
  EXPECT_LT(failed, 8);
}

TEST(ChannelFault, ADelayedActionChangesNothing) {
  for (int faulty : {0, 1}) {
    for (int64_t action = 0; action < 8; ++action) {
      Transports transports = InProcess(1 << 10);
      transports[faulty] =
          MakeFaultyTransport(std::move(transports[faulty]), {Fault::Kind::kDelay, action, 30});
      Pair ends(std::move(transports));
      const auto received = Receive(*ends.worker, {1, 1, 0});
      const auto sent = Send(*ends.server, {1, 1, 0}, Pattern(50000, 1));
      ASSERT_EQ(received->Wait().ToString(), "OK") << faulty << " " << action;
      EXPECT_EQ(*received->data, *sent->data);
      EXPECT_EQ(sent->Wait().ToString(), "OK");
    }
  }
}

TEST(ChannelFault, AMessageThatMakesNoSenseEndsIt) {
  Transports transports = InProcess(1 << 10);
  auto stranger = std::move(transports[1]);
  Channel worker(std::move(transports[0]), "worker 0 (a:1)", "ps 1 (b:2)");
  const auto received = Receive(worker, {1, 1, 0});
  const std::string nonsense = "GET / HTTP/1.1";
  stranger->Send(0, {0, 0, 0}, nonsense.data(), nonsense.size(), [](const Status&) {});
  const Status status = received->Wait();
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_TRUE(Has(status, "no channel of this version")) << status.ToString();
}

// Each leaves something that waits for a payload: the peer that sends none must not be able to pile them up.
TEST(ChannelFault, APeerThatAnnouncesAndCancelsWithoutEndEndsIt) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  Transports transports(2);
  ASSERT_TRUE(MakeTcpTransport(0, {-1, sockets[0]}, &transports[0]).ok());
  ASSERT_TRUE(MakeTcpTransport(1, {sockets[1], -1}, &transports[1]).ok());
  auto stranger = std::move(transports[1]);
  Channel worker(std::move(transports[0]), "worker 0 (a:1)", "ps 1 (b:2)");
  channel::Message tensor, cancel;
  tensor.kind = channel::MessageKind::kTensor;
  tensor.info = {1, {10000}, 40000};
  cancel.kind = channel::MessageKind::kCancel;
  tensor.payload = cancel.payload = 7;
  const std::string messages[] = {channel::Encode(tensor), channel::Encode(cancel)};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (worker.status().ok() && std::chrono::steady_clock::now() < end) {
    for (const std::string& message : messages) {
      stranger->Send(0, {0, 0, 0}, message.data(), message.size(), [](const Status&) {});
    }
    stranger->Progress();
  }
  EXPECT_EQ(worker.status().code(), Code::kMismatch);
  EXPECT_TRUE(Has(worker.status(), "65536 tensors were announced and have not arrived"))
      << worker.status().ToString();
}

TEST(ChannelFault, APeerThatIsNotThereIsNamed) {
  Transports transports = InProcess(1 << 10);
  Channel worker(std::move(transports[0]), "worker 0 (a:1)", "ps 1 (b:2)");
  const Status status = worker.WaitReady(0.2);
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(Has(status, "ps 1 (b:2)") && Has(status, "0.2 s")) << status.ToString();
}

}  // namespace
}  // namespace tf_strategies

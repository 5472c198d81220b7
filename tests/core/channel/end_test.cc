// How two ends come to be a channel: as a worker and a server do it, here in one process.

#include "ops/channel/end.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/channel/offered_sockets.h"
#include "ops/channel/registry.h"
#include "tests/core/support/sockets.h"

namespace tf_strategies {
namespace {

const std::vector<std::string> kTransports{"", "^sysv", "tcp,self"};

TEST(End, OfSeveralTransportsTheFirstThatOpensIsTaken) {
  std::unique_ptr<UcxWorker> end;
  EXPECT_TRUE(OpenEnd({"no_such_wire", "tcp,self"}, "", &end).ok());
  const Status status = OpenEnd({"no_such_wire", "neither_this"}, "", &end);
  EXPECT_NE(status.message().find("no_such_wire"), std::string::npos) << status.ToString();
  EXPECT_EQ(OpenEnd({}, "", &end).code(), Code::kInvalidArgument);
  EXPECT_EQ(OpenEnd(std::vector<std::string>(9, "tcp"), "", &end).code(), Code::kInvalidArgument);
}

TEST(End, AServerAcceptsOnlyWhenItIsPrepared) {
  std::unique_ptr<UcxWorker> end;
  ASSERT_TRUE(OpenEnd(kTransports, "", &end).ok());
  Accepted accepted;
  const Names names{"ps 0 (b:2)", "worker 0 (a:1)"};
  const Status early = Accept({kTransports, end->address(), "host", ""}, names, &accepted);
  EXPECT_EQ(early.code(), Code::kFailedPrecondition);
  EXPECT_NE(early.message().find("channel.prepare()"), std::string::npos);

  PrepareToAccept({"host", "", ""});
  EXPECT_EQ(Accept({kTransports, "", "host", ""}, names, &accepted).code(), Code::kInvalidArgument);
  ASSERT_TRUE(Accept({kTransports, end->address(), "another host", ""}, names, &accepted).ok());
  EXPECT_FALSE(accepted.same_host);
  CloseChannel(accepted.channel);
}

TEST(End, AWorkerThatComesAgainReplacesItsChannelsThatHaveEnded) {
  PrepareToAccept({"host", "", ""});
  const Names at_server{"ps 0 (b:2)", "worker 0 (a:1)"}, at_worker{"worker 0 (a:1)", "ps 0 (b:2)"};
  int64_t last = 0;
  for (int round = 0; round < 3; ++round) {
    std::unique_ptr<UcxWorker> end;
    ASSERT_TRUE(OpenEnd(kTransports, "", &end).ok());
    Accepted accepted;
    const Status status = Accept({kTransports, end->address(), "host", ""}, at_server, &accepted);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(accepted.same_host);
    EXPECT_GT(accepted.channel, last);
    last = accepted.channel;
    EXPECT_EQ(ChannelsTo("worker 0 (a:1)"), std::vector<int64_t>{accepted.channel});
    std::shared_ptr<Channel> channel;
    ASSERT_TRUE(
        ConnectEnd(std::move(end), Side::kWorker, accepted.address, accepted.same_host, at_worker, &channel)
            .ok());
    EXPECT_EQ(channel->WaitReady(20).ToString(), "OK");
    const auto servers = FindChannel(accepted.channel);
    channel->Close();
    for (int i = 0; i < 200 && servers->status().ok(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(servers->status().code(), Code::kAborted) << "the server's end heard of the close";
  }
  EXPECT_TRUE(ChannelsTo("worker 1 (a:1)").empty());
  CloseChannel(last);
  CloseChannel(last);
  EXPECT_EQ(FindChannel(last), nullptr);
}

TEST(End, AChannelToAnotherHostUsesTheDataConnectionOfTheWorker) {
  PrepareToAccept({"host", "", ""});
  const auto [at_worker, at_server] = ConnectedSockets();
  OfferSocket("token", at_server);
  Accepted accepted;
  const Names names{"ps 0 (b:2)", "worker 0 (a:1)"};
  ASSERT_TRUE(Accept({{"sm"}, "", "another host", "token"}, names, &accepted).ok());
  EXPECT_FALSE(accepted.same_host);
  EXPECT_EQ(accepted.address, "");
  std::shared_ptr<Channel> channel;
  ASSERT_TRUE(ConnectSocket(at_worker, Side::kWorker, "", {names.peer, names.mine}, &channel).ok());
  EXPECT_TRUE(channel->WaitReady(10).ok());
  EXPECT_EQ(channel->DescribeTransport(), "tcp");
  channel->Close();
  CloseChannel(accepted.channel);
}

TEST(End, AConnectionIsFoundByItsTokenAlone) {
  int socket = -1;
  const auto [kept, other] = ConnectedSockets();
  OfferSocket("kept", kept);
  EXPECT_EQ(TakeSocket("kept ", std::chrono::milliseconds(10), &socket).code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(TakeSocket("kept", std::chrono::milliseconds(10), &socket).ok());
  EXPECT_EQ(socket, kept);
  EXPECT_EQ(TakeSocket("kept", std::chrono::milliseconds(10), &socket).code(), Code::kDeadlineExceeded);
  close(kept);
  close(other);
}

TEST(End, OfTooManyConnectionsTheOldestIsClosed) {
  const auto [oldest, other] = ConnectedSockets();
  OfferSocket("oldest", oldest);
  std::vector<int> others;
  for (int i = 0; i < 256; ++i) {
    const auto [mine, theirs] = ConnectedSockets();
    OfferSocket("other", mine);
    others.push_back(theirs);
  }
  char byte;
  EXPECT_EQ(read(other, &byte, 1), 0) << "its other end sees that it is closed";
  int socket = -1;
  EXPECT_FALSE(TakeSocket("oldest", std::chrono::milliseconds(10), &socket).ok());
  while (TakeSocket("other", std::chrono::milliseconds(0), &socket).ok()) close(socket);
  for (const int each : others) close(each);
  close(other);
}

}  // namespace
}  // namespace tf_strategies

// Announcements and receptions find each other by key, step and iteration, and what nobody wants is forgotten.

#include "ops/channel/pairing.h"

#include <gtest/gtest.h>

namespace tf_strategies::channel {
namespace {

const Pairing::Clock::time_point kNow{};
const auto kLater = kNow + Pairing::kOld + std::chrono::seconds(1);

Message Announcement(TransferId id, uint32_t payload, bool carries_bytes = false) {
  Message message;
  message.kind = MessageKind::kTensor;
  message.id = id;
  message.payload = payload;
  message.carries_bytes = carries_bytes;
  return message;
}

std::optional<int64_t> Announce(Pairing* pairing, TransferId id, uint32_t payload,
                                bool carries_bytes = false) {
  Message message = Announcement(id, payload, carries_bytes);
  return pairing->Announce(&message, kNow);
}

TEST(Pairing, EitherMayComeFirst) {
  Pairing pairing;
  EXPECT_FALSE(pairing.Expect({1, 5, 0}, 100).has_value());
  EXPECT_EQ(Announce(&pairing, {1, 5, 0}, 7), 100);
  EXPECT_FALSE(Announce(&pairing, {1, 6, 0}, 8).has_value());
  EXPECT_EQ(pairing.announced(), 1u);
  EXPECT_EQ(pairing.Expect({1, 6, 0}, 101)->payload, 8u);
  EXPECT_EQ(pairing.announced(), 0u);
}

TEST(Pairing, CountsTheBytesThatWait) {
  Pairing pairing;
  const auto announce = [&](TransferId id, size_t bytes) {
    Message message = Announcement(id, 0, true);
    message.body.assign(bytes, 'x');
    pairing.Announce(&message, kNow);
  };
  announce({1, 5, 0}, 100);
  announce({1, 6, 0}, 30);
  announce({2, 5, 0}, 7);
  EXPECT_EQ(pairing.announced_bytes(), 137u);
  pairing.Expect({1, 6, 0}, 1);
  EXPECT_EQ(pairing.announced_bytes(), 107u);
  EXPECT_EQ(pairing.TakeStale(1, 9, kLater).size(), 1u);
  EXPECT_EQ(pairing.announced_bytes(), 7u);
}

TEST(Pairing, CountsWhatDimensionsTake) {
  Pairing pairing;
  Message message = Announcement({1, 5, 0}, 0, false);
  message.info.dims.assign(kMostDims, 1);
  const auto bytes = kMostDims * sizeof(int64_t);
  pairing.Announce(&message, kNow);
  EXPECT_EQ(pairing.announced_bytes(), bytes);
  pairing.Expect({1, 5, 0}, 1);
  EXPECT_EQ(pairing.announced_bytes(), 0u);
}

TEST(Pairing, KeyStepAndIterationAllCount) {
  Pairing pairing;
  pairing.Expect({1, 5, 2}, 100);
  EXPECT_FALSE(Announce(&pairing, {2, 5, 2}, 0).has_value());
  EXPECT_FALSE(Announce(&pairing, {1, 6, 2}, 1).has_value());
  EXPECT_FALSE(Announce(&pairing, {1, 5, 3}, 2).has_value());
  EXPECT_EQ(Announce(&pairing, {1, 5, 2}, 3), 100);
}

TEST(Pairing, EqualNamesPairInOrder) {
  Pairing pairing;
  Announce(&pairing, {1, 5, 0}, 7);
  Announce(&pairing, {1, 5, 0}, 8);
  EXPECT_EQ(pairing.Expect({1, 5, 0}, 1)->payload, 7u);
  EXPECT_EQ(pairing.Expect({1, 5, 0}, 2)->payload, 8u);
  pairing.Expect({1, 5, 0}, 3);
  pairing.Expect({1, 5, 0}, 4);
  EXPECT_EQ(Announce(&pairing, {1, 5, 0}, 9), 3);
  EXPECT_EQ(Announce(&pairing, {1, 5, 0}, 10), 4);
}

TEST(Pairing, AReceptionThatWasGivenUpWaitsNoLonger) {
  Pairing pairing;
  pairing.Expect({1, 5, 0}, 1);
  pairing.Expect({1, 5, 0}, 2);
  pairing.GiveUp({1, 5, 0}, 1);
  EXPECT_EQ(Announce(&pairing, {1, 5, 0}, 7), 2);
  EXPECT_FALSE(Announce(&pairing, {1, 5, 0}, 8).has_value());
}

TEST(Pairing, ACancelledAnnouncementIsGoneOnce) {
  Pairing pairing;
  Announce(&pairing, {1, 5, 0}, 7);
  Announce(&pairing, {2, 5, 0}, 7, true);
  EXPECT_FALSE(pairing.Cancel(8));
  EXPECT_TRUE(pairing.Cancel(7));
  EXPECT_FALSE(pairing.Cancel(7)) << "the other one brought its bytes and has no payload";
  EXPECT_FALSE(pairing.Expect({1, 5, 0}, 1).has_value());
  EXPECT_EQ(pairing.announced(), 1u);
}

TEST(Pairing, OnlyOldAnnouncementsOfOtherStepsOfTheKeyAreStale) {
  Pairing pairing;
  Announce(&pairing, {1, 5, 0}, 10);
  Announce(&pairing, {1, 5, 1}, 11);
  Announce(&pairing, {1, 6, 0}, 12);
  Announce(&pairing, {2, 5, 0}, 13);
  EXPECT_TRUE(pairing.TakeStale(1, 6, kNow + Pairing::kOld).empty());
  const auto stale = pairing.TakeStale(1, 6, kLater);
  ASSERT_EQ(stale.size(), 2u);
  EXPECT_EQ(stale[0].payload, 10u);
  EXPECT_EQ(stale[1].payload, 11u);
  EXPECT_EQ(pairing.announced(), 2u);
  EXPECT_TRUE(pairing.Expect({1, 6, 0}, 1).has_value());
  EXPECT_TRUE(pairing.Expect({2, 5, 0}, 2).has_value());
}

}  // namespace
}  // namespace tf_strategies::channel

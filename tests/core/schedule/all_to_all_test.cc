#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "ops/analysis/verify.h"
#include "ops/schedule/algorithms.h"

namespace tf_strategies::schedule {
namespace {

using Lengths = std::vector<std::vector<int64_t>>;  // by sender and receiver

std::vector<Schedule> Schedules(int64_t slot, const Lengths& lengths) {
  const int size = static_cast<int>(lengths.size());
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < size; ++rank) {
    std::vector<int64_t> receives;
    for (const auto& of_sender : lengths) receives.push_back(of_sender[rank]);
    schedules.push_back(PairwiseAllToAll(rank, size, slot, lengths[rank], receives));
  }
  return schedules;
}

Status Verdict(int64_t slot, const Lengths& lengths, const std::vector<Schedule>& schedules) {
  return VerifyAllToAll(static_cast<int>(lengths.size()), slot, lengths,
                        [&](int rank) { return schedules[rank]; });
}

TEST(PairwiseAllToAll, BringsSegmentsOfAnyLength) {
  for (int size = 1; size <= 40; ++size) {
    Lengths lengths(size, std::vector<int64_t>(size));
    for (int from = 0; from < size; ++from) {
      for (int to = 0; to < size; ++to) lengths[from][to] = (from * 7 + to * 3 + size) % 5;
    }
    const Status status = Verdict(4, lengths, Schedules(4, lengths));
    ASSERT_TRUE(status.ok()) << size << ": " << status.ToString();
  }
}

TEST(PairwiseAllToAll, TakesEmptySegments) {
  for (const Lengths& lengths : {Lengths{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}},
                                 {{9, 0, 0}, {0, 0, 0}, {0, 0, 9}},
                                 {{0, 9, 0}, {0, 0, 0}, {0, 0, 0}},
                                 {{0, 0, 0}, {1, 1, 1}, {0, 0, 0}},
                                 {{0, 0, 1}, {0, 0, 1}, {0, 0, 1}}}) {
    const Status status = Verdict(9, lengths, Schedules(9, lengths));
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

TEST(PairwiseAllToAll, MovesEachSegmentOnceAndNoneToItsOwnRank) {
  for (int size = 2; size <= 9; ++size) {
    for (const Schedule& schedule : Schedules(2, Lengths(size, std::vector<int64_t>(size, 2)))) {
      ASSERT_EQ(schedule.steps.size(), static_cast<size_t>(size) - 1);
      for (const Step& step : schedule.steps) ASSERT_EQ(step.size(), 2U) << "one rank to, one rank from";
    }
  }
}

TEST(VerifyAllToAll, FindsWhatIsMissingAndWhatIsElsewhere) {
  const Lengths lengths(3, std::vector<int64_t>(3, 2));
  const auto verdict = [&](const std::function<void(std::vector<Schedule>*)>& harm) {
    std::vector<Schedule> schedules = Schedules(2, lengths);
    harm(&schedules);
    return Verdict(2, lengths, schedules).message();
  };
  EXPECT_EQ(verdict([](auto*) {}), "");
  const std::string missing = verdict([](auto* s) {
    (*s)[0].steps[0].erase((*s)[0].steps[0].begin());
    (*s)[1].steps[0].erase((*s)[1].steps[0].begin() + 1);
  });
  EXPECT_EQ(missing, "rank 1 ends with a wrong result in elements [6,8): lacks rank 0");
  const std::string elsewhere = verdict([](auto* s) {
    for (Schedule& schedule : *s) {
      for (Action& action : schedule.steps[0]) action.range = {0, 2};
    }
  });
  EXPECT_NE(elsewhere.find("ends with a wrong result"), std::string::npos) << elsewhere;
  const std::string half = verdict([](auto* s) {
    (*s)[2].steps[1][0].range.end -= 1;
    (*s)[1].steps[1][1].range.end -= 1;
  });
  EXPECT_NE(half.find("rank 1 ends with a wrong result"), std::string::npos) << half;
}

}  // namespace
}  // namespace tf_strategies::schedule

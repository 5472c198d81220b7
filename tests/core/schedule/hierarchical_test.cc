// The hierarchical all-reduce over every arrangement of hosts, with each algorithm across them.
#include <gtest/gtest.h>

#include "ops/analysis/cost.h"
#include "ops/analysis/verify.h"
#include "ops/schedule/algorithms.h"
#include "ops/schedule/choose.h"
#include "tests/core/support/sanitized.h"

namespace tf_strategies::schedule {
namespace {

class HierarchicalOver : public testing::TestWithParam<Algorithm> {
 protected:
  static BuildRank Build(int hosts, int per_host, int64_t count) {
    return [=](int rank) { return Hierarchical(rank, hosts * per_host, count, per_host, GetParam().build); };
  }
};

TEST_P(HierarchicalOver, IsRightForEveryArrangementOfHosts) {
  for (int hosts = 1; hosts <= 13; ++hosts) {
    for (int per_host = 1; per_host <= 9; ++per_host) {
      for (int64_t count : {0, 1, hosts - 1, per_host + 1, hosts * per_host - 1, 1000}) {
        const Status status = VerifyAllReduce(hosts * per_host, count, Build(hosts, per_host, count));
        ASSERT_TRUE(status.ok()) << hosts << " x " << per_host << ", count " << count << ": "
                                 << status.ToString();
      }
    }
  }
}

TEST_P(HierarchicalOver, IsRightForManyHosts) {
  for (const auto& [hosts, per_host] : {std::pair{100, 3}, {3, 100}, {75, 8}, {128, 8}, {512, 8}}) {
    if (kSanitized && hosts * per_host > 300) break;
    for (int64_t count : {999, 1 << 15}) {
      const Status status = VerifyAllReduce(hosts * per_host, count, Build(hosts, per_host, count));
      ASSERT_TRUE(status.ok()) << hosts << " x " << per_host << ", count " << count << ": "
                               << status.ToString();
    }
  }
}

// Between hosts goes what the algorithm across them sends of a part.
TEST_P(HierarchicalOver, SendsBetweenHostsOnlyItsPart) {
  const int per_host = 8;
  const int64_t count = 24 * 64;
  for (int hosts : {2, 3, 4, 12}) {
    for (int rank = 0; rank < hosts * per_host; ++rank) {
      int64_t sent = 0;
      for (const Step& step : Build(hosts, per_host, count)(rank).steps) {
        for (const Action& action : step) {
          if (action.kind == ActionKind::kSend && action.peer / per_host != rank / per_host) {
            sent += action.range.size();
          }
        }
      }
      const Schedule across = GetParam().build(rank / per_host, hosts, count / per_host);
      EXPECT_EQ(sent, CountCost(across).elements_sent) << hosts << " " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Across, HierarchicalOver, testing::ValuesIn(AllReduceAlgorithms()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tf_strategies::schedule

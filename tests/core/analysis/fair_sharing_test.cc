// Max-min fair rates against ones that were worked out by hand, and against their definition.
#include "ops/analysis/fair_sharing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tf_strategies::schedule {
namespace {

std::vector<Link> Links(const std::vector<double>& bandwidths) {
  std::vector<Link> links;
  for (double bandwidth : bandwidths) links.push_back({"", bandwidth});
  return links;
}

Path Over(const std::vector<int>& links) {
  Path path;
  for (int link : links) path.Add(link);
  return path;
}

TEST(FairSharing, GivesOneFlowTheNarrowestOfItsLinks) {
  FairSharing sharing(Links({10, 3, 7}), 1);
  sharing.Begin(0, Over({0, 1, 2}));
  EXPECT_EQ(sharing.Update(), std::vector<int>{0});
  EXPECT_DOUBLE_EQ(sharing.rate(0), 3);
}

// Bertsekas and Gallager's kind of example: flow 0 crosses both links, 1 and 2 share the narrow one with it, 3
// takes what is left of the wide one.
TEST(FairSharing, GivesWhatAFlowCannotUseToTheOthers) {
  FairSharing sharing(Links({3, 10}), 4);
  sharing.Begin(0, Over({0, 1}));
  sharing.Begin(1, Over({0}));
  sharing.Begin(2, Over({0}));
  sharing.Begin(3, Over({1}));
  sharing.Update();
  for (int flow : {0, 1, 2}) EXPECT_DOUBLE_EQ(sharing.rate(flow), 1) << flow;
  EXPECT_DOUBLE_EQ(sharing.rate(3), 9);

  sharing.End(1);
  EXPECT_EQ(sharing.Update().size(), 3u);
  EXPECT_DOUBLE_EQ(sharing.rate(0), 1.5);
  EXPECT_DOUBLE_EQ(sharing.rate(2), 1.5);
  EXPECT_DOUBLE_EQ(sharing.rate(3), 8.5);
}

TEST(FairSharing, LeavesFlowsAloneThatShareNothingWithTheNewOne) {
  FairSharing sharing(Links({4, 4}), 3);
  sharing.Begin(0, Over({0}));
  sharing.Begin(1, Over({1}));
  sharing.Update();
  sharing.Begin(2, Over({1}));
  std::vector<int> changed = sharing.Update();
  std::sort(changed.begin(), changed.end());
  EXPECT_EQ(changed, (std::vector<int>{1, 2}));
  EXPECT_DOUBLE_EQ(sharing.rate(0), 4);
  EXPECT_DOUBLE_EQ(sharing.rate(1), 2);
}

// The definition: no link is over full, and every flow has a full link on which no flow is faster.
TEST(FairSharing, IsMaxMinFairForRandomFlowsThatComeAndGo) {
  std::mt19937 random(7);
  const int links = 12;
  const int flows = 40;
  std::vector<double> bandwidths;
  for (int i = 0; i < links; ++i) bandwidths.push_back(1 + random() % 20);
  FairSharing sharing(Links(bandwidths), flows);
  std::vector<bool> under_way(flows, false);
  for (int round = 0; round < 300; ++round) {
    for (int change = 0; change < 5; ++change) {
      const int flow = random() % flows;
      if (under_way[flow]) {
        sharing.End(flow);
      } else {
        std::vector<int> all(links);
        for (int i = 0; i < links; ++i) all[i] = i;
        std::shuffle(all.begin(), all.end(), random);
        all.resize(1 + random() % 5);
        sharing.Begin(flow, Over(all));
      }
      under_way[flow] = !under_way[flow];
    }
    sharing.Update();
    std::vector<double> load(links, 0);
    std::vector<double> fastest(links, 0);
    for (int flow = 0; flow < flows; ++flow) {
      if (!under_way[flow]) continue;
      const Path& path = sharing.path(flow);
      for (int i = 0; i < path.length; ++i) {
        load[path.links[i]] += sharing.rate(flow);
        fastest[path.links[i]] = std::max(fastest[path.links[i]], sharing.rate(flow));
      }
    }
    for (int link = 0; link < links; ++link) EXPECT_LE(load[link], bandwidths[link] * (1 + 1e-9));
    for (int flow = 0; flow < flows; ++flow) {
      if (!under_way[flow]) continue;
      bool held_back = false;
      const Path& path = sharing.path(flow);
      for (int i = 0; i < path.length; ++i) {
        const int link = path.links[i];
        held_back |=
            load[link] > bandwidths[link] * (1 - 1e-9) && sharing.rate(flow) >= fastest[link] * (1 - 1e-9);
      }
      EXPECT_TRUE(held_back) << "round " << round << ", flow " << flow;
    }
  }
}

}  // namespace
}  // namespace tf_strategies::schedule

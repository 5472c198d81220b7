// The simulation against the alpha-beta-gamma model, the closed forms, and cases worked out by hand.
#include "ops/analysis/simulate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "ops/analysis/cost.h"
#include "ops/analysis/verify.h"
#include "ops/schedule/algorithms.h"
#include "ops/schedule/choose.h"
#include "tests/core/support/sanitized.h"

namespace tf_strategies::schedule {
namespace {

constexpr auto kSend = ActionKind::kSend;
constexpr auto kAdd = ActionKind::kReceiveReduce;
constexpr auto kCopy = ActionKind::kReceiveCopy;
constexpr int64_t kElementBytes = 4;

Simulated Play(int size, int64_t count, const Topology& topology, const BuildRank& build) {
  GroupProgram program;
  const Status packed = PackGroup(size, count, build, &program);
  EXPECT_TRUE(packed.ok()) << packed.ToString();
  return Simulate(program, kElementBytes, topology);
}

BuildRank BuildOf(const char* name, int size, int64_t count) {
  const Algorithm* const algorithm = FindAlgorithm(name);
  return [=](int rank) { return algorithm->build(rank, size, count); };
}

Simulated Play(const char* name, int size, int64_t count, const Topology& topology) {
  return Play(size, count, topology, BuildOf(name, size, count));
}

// A host for each rank, and no link that two messages could share.
Topology Alone(const CostModel& model) {
  Topology topology;
  topology.network_latency = model.alpha;
  topology.nic_bandwidth = 1 / model.beta;
  topology.gamma = model.gamma;
  topology.receivers_without_limit = true;
  return topology;
}

// Each of the three terms dominates once.
std::vector<CostModel> Models() {
  std::vector<CostModel> models(4);
  models[1].alpha = 1e-2;
  models[2].beta = 1e-7;
  models[3].gamma = 1e-7;
  return models;
}

// 100 bytes a second everywhere; latency and gamma are 0.
Topology Hosts(int per_host) {
  Topology topology;
  topology.per_host = per_host;
  topology.nic_bandwidth = 100;
  return topology;
}

// Each of `pairs` sends 100 elements, 400 bytes, from the first to the second, all at once.
BuildRank Messages(int size, const std::vector<std::pair<int, int>>& pairs) {
  return [=](int rank) {
    Schedule schedule{rank, size, 100, {}};
    Step step;
    for (const auto& [from, to] : pairs) {
      if (from == rank) step.push_back({kSend, to, {0, 100}});
      if (to == rank) step.push_back({kAdd, from, {0, 100}});
    }
    if (!step.empty()) schedule.steps.push_back(step);
    return schedule;
  };
}

double Seconds(int size, const Topology& topology, const std::vector<std::pair<int, int>>& pairs) {
  return Play(size, 100, topology, Messages(size, pairs)).seconds;
}

TEST(Simulate, IsTheCostModelWhereNothingIsShared) {
  for (const CostModel& model : Models()) {
    for (const Algorithm& algorithm : AllReduceAlgorithms()) {
      for (int size = 2; size <= 33; ++size) {
        for (int64_t count : {1, 7, 100, 1 << 16}) {
          const BuildRank build = BuildOf(algorithm.name, size, count);
          const double model_seconds = PredictSeconds(size, kElementBytes, model, build);
          EXPECT_NEAR(Play(size, count, Alone(model), build).seconds, model_seconds, 1e-9 * model_seconds)
              << algorithm.name << " " << size << " " << count;
        }
      }
    }
  }
}

// Thakur, Rabenseifner and Gropp 2005, up to 1024 ranks.
TEST(Simulate, ReproducesTheClosedForms) {
  const int64_t count = 1 << 20;
  const double bytes = count * kElementBytes;
  for (const CostModel& m : Models()) {
    const Topology alone = Alone(m);
    for (int size : {2, 8, 64, kSanitized ? 128 : 1024}) {
      const double lg = std::log2(size);
      const double share = (size - 1.0) / size * bytes;
      const double moved = 2 * share * m.beta + share * m.gamma;
      const double ring = 2.0 * (size - 1) * m.alpha + moved;
      const double doubling = lg * (m.alpha + bytes * m.beta + bytes * m.gamma);
      const double halving = 2 * lg * m.alpha + moved;
      EXPECT_NEAR(Play("ring", size, count, alone).seconds, ring, 0.01 * ring) << size;
      EXPECT_NEAR(Play("recursive_doubling", size, count, alone).seconds, doubling, 0.01 * doubling) << size;
      EXPECT_NEAR(Play("halving_doubling", size, count, alone).seconds, halving, 0.01 * halving) << size;
      EXPECT_NEAR(Play("binary_blocks", size, count, alone).seconds, halving, 0.01 * halving) << size;
    }
    // A ring of any size; halving-doubling folded to a power of two.
    for (int size : {3, 6, 48, kSanitized ? 100 : 600}) {
      const double share = (size - 1.0) / size * bytes;
      const double ring = 2.0 * (size - 1) * m.alpha + 2 * share * m.beta + share * m.gamma;
      EXPECT_NEAR(Play("ring", size, count, alone).seconds, ring, 0.01 * ring) << size;
      const double main = std::exp2(std::floor(std::log2(size)));
      const double folded = (3 + 2 * std::log2(main)) * m.alpha +
                            (2 + 2 * (main - 1) / main) * bytes * m.beta +
                            (0.5 + (main - 1) / main) * bytes * m.gamma;
      EXPECT_NEAR(Play("halving_doubling", size, count, alone).seconds, folded, 0.01 * folded) << size;
    }
  }
}

// Two blocks of sizes B and b = B/2 for P = 3: rank 2 hands over all, in two halves, and gets them back.
TEST(Simulate, OfBinaryBlocksOverThreeRanksIsWorkedOutByHand) {
  const int64_t count = 1 << 20;
  const double bytes = count * kElementBytes;
  for (const CostModel& m : Models()) {
    // Rank 2 sends both halves in turn; the second is added when the first and the pair's own are. The sums
    // then come back beside the all-gather, whose own message each of the pair sends second.
    const double half = m.alpha + bytes / 2 * m.beta;
    const double added = std::max({2 * half, half + bytes / 2 * m.gamma}) + bytes / 2 * m.gamma;
    const double expected = added + 2 * half;
    EXPECT_NEAR(Play("binary_blocks", 3, count, Alone(m)).seconds, expected, 0.01 * expected);
  }
}

// The bytes from which halving_doubling is faster than recursive_doubling.
double CrossingBytes(int size, const CostModel& model) {
  int64_t below = 0;
  int64_t above = 1 << 16;  // elements
  while (above - below > 1) {
    const int64_t count = (below + above) / 2;
    const double doubling = Play("recursive_doubling", size, count, Alone(model)).seconds;
    const double halving = Play("halving_doubling", size, count, Alone(model)).seconds;
    (doubling < halving ? below : above) = count;
  }
  return static_cast<double>(above * kElementBytes);
}

// The closed forms are equal at n = alpha lg P / (beta (lg P - 2 (P-1)/P) + gamma (lg P - (P-1)/P)). Choose goes
// over at 16 KB for every P, which lies between the crossings for 3 us and 5 us from 8 to 256 ranks; with 2 and
// 4 ranks the model would go over later.
TEST(Simulate, CrossesFromDoublingToHalvingWhereTheClosedFormsAndChooseDo) {
  const double chosen = 16 << 10;
  for (int size : {2, 4, 8, 16, 64, 256}) {
    double crossings[2];
    for (int i : {0, 1}) {
      CostModel model;
      model.alpha = i == 0 ? 3e-6 : 5e-6;
      const double lg = std::log2(size);
      const double share = (size - 1.0) / size;
      const double closed = lg * model.alpha / (model.beta * (lg - 2 * share) + model.gamma * (lg - share));
      crossings[i] = CrossingBytes(size, model);
      EXPECT_NEAR(crossings[i], closed, 0.01 * closed) << size;
    }
    EXPECT_STREQ(Choose(size, 16 << 10).name, "recursive_doubling");
    EXPECT_STREQ(Choose(size, (16 << 10) + 4).name, "halving_doubling");
    EXPECT_EQ(chosen < crossings[0], size <= 4) << size;
    EXPECT_LT(chosen, crossings[1]) << size;
  }
}

TEST(Simulate, TwoMessagesOverOneNicTakeTwiceAsLong) {
  EXPECT_DOUBLE_EQ(Seconds(4, Hosts(2), {{0, 2}}), 4);
  EXPECT_DOUBLE_EQ(Seconds(4, Hosts(2), {{0, 2}, {1, 3}}), 8);
  EXPECT_DOUBLE_EQ(Seconds(4, Hosts(2), {{0, 2}, {3, 1}}), 4) << "each way is a link of its own";
  EXPECT_DOUBLE_EQ(Seconds(6, Hosts(2), {{0, 2}, {4, 3}}), 8) << "into one host";
  EXPECT_DOUBLE_EQ(Seconds(4, Hosts(1), {{0, 2}, {1, 3}}), 4) << "a host each";
}

TEST(Simulate, AMessageThatEndsLeavesItsShareToTheOthers) {
  // Rank 0 sends 400 bytes, rank 1 800 in two messages: half each for 8 s, then all for the last 4.
  const BuildRank build = [](int rank) {
    Schedule schedule{rank, 4, 100, {}};
    if (rank < 2) schedule.steps.push_back({{kSend, rank + 2, {0, 100}}});
    if (rank >= 2) schedule.steps.push_back({{kCopy, rank - 2, {0, 100}}});
    if (rank == 1) schedule.steps.push_back({{kSend, 3, {0, 100}}});
    if (rank == 3) schedule.steps.push_back({{kCopy, 1, {0, 100}}});
    return schedule;
  };
  EXPECT_DOUBLE_EQ(Play(4, 100, Hosts(2), build).seconds, 12);
}

TEST(Simulate, ABusIsSharedByBothWaysAndAPortIsNot) {
  Topology bus;
  bus.per_host = 4;
  bus.bus_bandwidth = 100;
  Topology ports;
  ports.per_host = 4;
  ports.port_bandwidth = 100;
  EXPECT_DOUBLE_EQ(Seconds(4, bus, {{0, 1}, {2, 3}}), 8);
  EXPECT_DOUBLE_EQ(Seconds(4, bus, {{0, 1}, {1, 0}}), 8);
  EXPECT_DOUBLE_EQ(Seconds(4, ports, {{0, 1}, {2, 3}}), 4);
  EXPECT_DOUBLE_EQ(Seconds(4, ports, {{0, 1}, {1, 0}}), 4);
  EXPECT_DOUBLE_EQ(Seconds(4, ports, {{0, 2}, {1, 2}}), 8) << "into one port";
}

TEST(Simulate, AnOversubscribedUplinkIsSharedByItsRack) {
  Topology tree = Hosts(1);
  tree.hosts_per_rack = 4;
  tree.oversubscription = 4;  // the uplink is as wide as one NIC
  tree.network_latency = 1;
  tree.rack_latency = 0.5;
  EXPECT_DOUBLE_EQ(Seconds(8, tree, {{0, 1}, {2, 3}}), 5) << "inside the rack";
  EXPECT_DOUBLE_EQ(Seconds(8, tree, {{0, 4}}), 5.5);
  EXPECT_DOUBLE_EQ(Seconds(8, tree, {{0, 4}, {1, 5}}), 9.5);
  EXPECT_DOUBLE_EQ(Seconds(8, tree, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}), 17.5);
  EXPECT_DOUBLE_EQ(Seconds(8, tree, {{0, 4}, {1, 5}, {2, 3}}), 9.5) << "the message inside is not slowed";
  tree.oversubscription = 1;
  EXPECT_DOUBLE_EQ(Seconds(8, tree, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}), 5.5);
}

// Inside a host of two the ring's steps are short; its time is that of the message over the NIC in each.
TEST(Simulate, TheRingKeepsItsPaceOverHosts) {
  Topology topology = Hosts(2);
  topology.port_bandwidth = 1e6;
  const Simulated ring = Play("ring", 8, 800, topology);
  EXPECT_NEAR(ring.seconds, 14 * 4.0, 0.01);
}

// The bytes over each link, counted from the schedules.
TEST(Simulate, CarriesOverEachLinkWhatTheSchedulesSend) {
  for (const char* preset : {"alpha_beta", "pcie", "nvlink", "nvlink_tree"}) {
    Topology topology = *FindTopology(preset);
    if (topology.per_host > 1) topology.per_host = 4;
    if (topology.hosts_per_rack > 0) topology.hosts_per_rack = 2;
    for (const char* name : {"ring", "recursive_doubling", "halving_doubling", "binary_blocks"}) {
      for (int size : {8, 12, 22, 48}) {
        for (int64_t count : {10, 1 << 14, 48 * 1024}) {
          const BuildRank build = BuildOf(name, size, count);
          const Simulated simulated = Play(size, count, topology, build);
          const Network network(topology, size);
          std::vector<double> expected(network.links().size(), 0);
          int64_t messages = 0;
          for (int rank = 0; rank < size; ++rank) {
            for (const Step& step : build(rank).steps) {
              for (const Action& action : step) {
                if (action.kind != kSend) continue;
                ++messages;
                const Path path = network.Between(rank, action.peer);
                for (int i = 0; i < path.length; ++i)
                  expected[path.links[i]] += action.range.size() * kElementBytes;
              }
            }
          }
          EXPECT_EQ(simulated.messages, messages);
          for (size_t link = 0; link < expected.size(); ++link) {
            const Link& about = network.links()[link];
            EXPECT_NEAR(simulated.carried[link], expected[link], 1e-6 * expected[link] + 1e-6)
                << preset << " " << name << " " << size << " " << count << ": " << about.name;
            EXPECT_LE(simulated.carried[link], about.bandwidth * simulated.seconds * (1 + 1e-9))
                << about.name;
          }
        }
      }
    }
  }
}

// On a bus the steps of a ring never quite repeat, and behind a narrow uplink only late: there all may be played.
TEST(Simulate, SkipsRepetitionsWithoutAnError) {
  for (const char* preset : {"alpha_beta", "pcie", "nvlink", "nvlink_tree"}) {
    for (int size : {24, 48, 256}) {
      const int64_t count = int64_t{size} << 14;
      GroupProgram program;
      ASSERT_TRUE(PackGroup(size, count, BuildOf("ring", size, count), &program).ok());
      const Topology& topology = *FindTopology(preset);
      const Simulated skipped = Simulate(program, kElementBytes, topology);
      const Simulated played = Simulate(program, kElementBytes, topology, false);
      EXPECT_EQ(played.messages_played, played.messages) << preset << " " << size;
      if (std::string(preset) == "alpha_beta" || std::string(preset) == "nvlink") {
        EXPECT_LT(skipped.messages_played, skipped.messages / 2) << preset << " " << size;
      }
      EXPECT_NEAR(skipped.seconds, played.seconds, 1e-7 * played.seconds) << preset << " " << size;
      for (size_t link = 0; link < played.carried.size(); ++link) {
        EXPECT_NEAR(skipped.carried[link], played.carried[link], 1e-7 * played.carried[link])
            << preset << " " << size << " " << link;
      }
    }
  }
}

TEST(Simulate, HierarchicalTakesANicsBytesAndTheStepsOfBothLevels) {
  Topology topology = *FindTopology("nvlink");
  const int hosts = 16;
  const int size = hosts * topology.per_host;
  const int64_t count = 1 << 24;
  const Simulated simulated = Play(size, count, topology, [&](int rank) {
    return Hierarchical(rank, size, count, topology.per_host, FindAlgorithm("halving_doubling")->build);
  });
  // All 8 ranks of a host take their parts across at once and share its NIC, so it carries 2n(H-1)/H.
  const double bytes = count * kElementBytes;
  const double gpus = topology.per_host;
  const double inside = 2 * (gpus - 1) * (topology.host_latency + bytes / gpus / topology.port_bandwidth) +
                        (gpus - 1) / gpus * bytes * topology.gamma;
  const double across = 2 * std::log2(hosts) * topology.network_latency +
                        2 * (hosts - 1.0) / hosts * bytes / topology.nic_bandwidth +
                        (hosts - 1.0) / hosts * bytes / gpus * topology.gamma;
  EXPECT_NEAR(simulated.seconds, inside + across, 0.01 * (inside + across));
}

}  // namespace
}  // namespace tf_strategies::schedule

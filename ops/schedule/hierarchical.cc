// Name: hierarchical all-reduce.
// Restrictions: the ranks of a host follow one another, and every host has as many; count is any.
// Steps: 2(G-1) inside a host of G ranks, and those of the algorithm across the H hosts.
// Bytes per rank: sends 2n(G-1)/G inside its host, and what the algorithm across hosts sends of n/G elements.
// Order of rounding: an element is summed around the ring of each host, then over hosts as the algorithm
//   across them does; the sum is copied.
// Source: Mikami et al., "Massively distributed SGD: ImageNet/ResNet-50 training in a flash", 2018, where it
//   is called 2D-torus all-reduce and runs a ring across as well.
//
// Reduce-scatter around the ring of the host, which ends with part l at its l-th rank; an all-reduce of that
// part among the l-th ranks of all hosts, G of them at once; an all-gather around the ring of the host.
#include "ops/base/check.h"
#include "ops/schedule/algorithms.h"
#include "ops/schedule/chunking.h"

namespace tf_strategies::schedule {

Schedule Hierarchical(int rank, int size, int64_t count, int per_host, BuildAllReduce across) {
  TFS_CHECK_GE(per_host, 1);
  TFS_CHECK_EQ(size % per_host, 0);
  Schedule schedule{rank, size, count, {}};
  const int host = rank / per_host;
  const int local = rank % per_host;
  const int first = rank - local;
  const int right = first + (local + 1) % per_host;
  const int left = first + (local + per_host - 1) % per_host;
  const auto part = [&](int index) {
    return Part({0, count}, per_host, (index % per_host + per_host) % per_host);
  };

  for (int t = 1; t < per_host; ++t) {
    AppendStep(&schedule, {{ActionKind::kSend, right, part(local - t)},
                           {ActionKind::kReceiveReduce, left, part(local - t - 1)}});
  }
  const Range mine = part(local);
  for (Step& step : across(host, size / per_host, mine.size()).steps) {
    for (Action& action : step) {
      action.peer = action.peer * per_host + local;
      action.range.begin += mine.begin;
      action.range.end += mine.begin;
    }
    AppendStep(&schedule, step);
  }
  for (int t = 0; t + 1 < per_host; ++t) {
    AppendStep(&schedule, {{ActionKind::kSend, right, part(local - t)},
                           {ActionKind::kReceiveCopy, left, part(local - t - 1)}});
  }
  return schedule;
}

}  // namespace tf_strategies::schedule

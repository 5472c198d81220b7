// How fast messages flow that share links: the max-min fair rates.
//
// No flow can be faster without one that is no faster than it becoming slower. Found by progressive filling:
// all rates rise together, a flow stops where one of its links is full. This is what long flows of a network
// with fair queueing or with TCP come close to, and what simulators of grids use; it knows no packets.
//
// Source: Bertsekas and Gallager, "Data Networks", 2nd edition, 1992, section 6.5.2; Velho, Schnorr, Casanova
//   and Legrand, "On the validity of flow-level TCP network models for grid and cloud simulations", 2013.
#ifndef OPS_ANALYSIS_FAIR_SHARING_H_
#define OPS_ANALYSIS_FAIR_SHARING_H_

#include <cstdint>
#include <vector>

#include "ops/analysis/topology.h"

namespace tf_strategies::schedule {

// Not thread-safe. Rates and bandwidths in bytes a second.
class FairSharing {
 public:
  // flows: they are numbered from 0 to flows - 1.
  FairSharing(const std::vector<Link>& links, int flows);

  // A flow that is not under way begins, over one link at least; one that is ends.
  void Begin(int flow, const Path& path);
  void End(int flow);

  // Finds the rates again of all flows that share links, directly or through others, with those that began or
  // ended since the last call. Returns the flows whose rate has changed, until the next call.
  const std::vector<int>& Update();

  double rate(int flow) const { return flows_[flow].rate; }
  const Path& path(int flow) const { return flows_[flow].path; }

 private:
  struct Flow {
    Path path;
    std::array<int, 8> place{};  // where it stands in the lists of its links
    double rate = 0;
    bool fixed = false;
    int64_t seen = 0;
  };
  struct LinkState {
    double bandwidth = 0;
    std::vector<int> flows;
    double left = 0;  // while filling: what no fixed flow takes
    int open = 0;     // while filling: flows that are not fixed
    int64_t seen = 0;
  };

  void Touch(const Path& path);
  void CollectComponent(int link);
  void Fill();

  std::vector<LinkState> links_;
  std::vector<Flow> flows_;
  std::vector<int> touched_;  // links
  std::vector<int> changed_;  // flows
  std::vector<int> component_links_;
  std::vector<int> component_flows_;
  std::vector<int> full_;
  int64_t round_ = 0;
};

}  // namespace tf_strategies::schedule

#endif  // OPS_ANALYSIS_FAIR_SHARING_H_

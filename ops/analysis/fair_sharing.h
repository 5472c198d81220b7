// Computes the max-min fair rates of flows that share links.
//
// With these rates, no flow can become faster unless another flow, whose rate is not higher, becomes slower. They are
// found by progressive filling: all rates increase together, and the rate of a flow is fixed when one of its links is
// full. Long flows in a network with fair queueing or TCP approximate these rates, and simulators of grids use them. The
// model does not have packets.
//
// Source: Bertsekas and Gallager, "Data Networks", 2nd edition, 1992, section 6.5.2; Velho, Schnorr, Casanova
//   and Legrand, "On the validity of flow-level TCP network models for grid and cloud simulations", 2013.
#ifndef OPS_ANALYSIS_FAIR_SHARING_H_
#define OPS_ANALYSIS_FAIR_SHARING_H_

#include <cstdint>
#include <vector>

#include "ops/analysis/topology.h"

namespace tf_strategies::schedule {

// Not thread-safe. Rates and bandwidths are in bytes per second.
class FairSharing {
 public:
  // flows: the number of flows. They are numbered from 0.
  FairSharing(const std::vector<Link>& links, int flows);

  // Begins a flow over at least one link. The flow must not have begun.
  void Begin(int flow, const Path& path);

  // Ends a flow that has begun.
  void End(int flow);

  // Computes new rates after flows have begun or ended, for all flows that share links with them, directly or through
  // other flows. Returns the flows whose rate has changed. The result is valid until the next call.
  const std::vector<int>& Update();

  double rate(int flow) const { return flows_[flow].rate; }
  const Path& path(int flow) const { return flows_[flow].path; }

 private:
  struct Flow {
    Path path;
    std::array<int, 8> place{};  // its position in the list of each of its links
    double rate = 0;
    bool fixed = false;
    int64_t seen = 0;
  };
  struct LinkState {
    double bandwidth = 0;
    std::vector<int> flows;
    double left = 0;  // while filling: the bandwidth that the fixed flows leave
    int open = 0;     // while filling: the number of flows that are not fixed
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

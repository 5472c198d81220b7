#include "ops/analysis/topology.h"

#include "ops/base/check.h"

namespace tf_strategies::schedule {
namespace {

constexpr double kMicrosecond = 1e-6;
constexpr double kGigabyte = 1e9;
constexpr double kGigabit = 1e9 / 8;

// One process on each host, 10 Gbit/s.
Topology AlphaBeta() {
  Topology topology;
  topology.name = "alpha_beta";
  topology.network_latency = 50 * kMicrosecond;
  topology.nic_bandwidth = 10 * kGigabit;
  topology.gamma = 0.1e-9;
  topology.receivers_without_limit = true;
  return topology;
}

// 8 GPUs on one PCI Express 3.0 x16 bus, one 25 Gbit/s NIC.
Topology Pcie() {
  Topology topology;
  topology.name = "pcie";
  topology.per_host = 8;
  topology.host_latency = 5 * kMicrosecond;
  topology.bus_bandwidth = 12 * kGigabyte;
  topology.network_latency = 25 * kMicrosecond;
  topology.nic_bandwidth = 25 * kGigabit;
  topology.gamma = 0.02e-9;
  return topology;
}

// 8 GPUs, each with 150 GB/s to a switch within the host, and one 100 Gbit/s NIC.
Topology Nvlink() {
  Topology topology;
  topology.name = "nvlink";
  topology.per_host = 8;
  topology.host_latency = 3 * kMicrosecond;
  topology.port_bandwidth = 150 * kGigabyte;
  topology.network_latency = 10 * kMicrosecond;
  topology.nic_bandwidth = 100 * kGigabit;
  topology.gamma = 0.005e-9;
  return topology;
}

// The same in racks of 16 hosts. An uplink has a quarter of the bandwidth of the NICs of its rack.
Topology NvlinkTree() {
  Topology topology = Nvlink();
  topology.name = "nvlink_tree";
  topology.hosts_per_rack = 16;
  topology.rack_latency = 2 * kMicrosecond;
  topology.oversubscription = 4;
  return topology;
}

}  // namespace

const std::vector<Topology>& Topologies() {
  static const auto* const topologies =
      new std::vector<Topology>{AlphaBeta(), Pcie(), Nvlink(), NvlinkTree()};
  return *topologies;
}

const Topology* FindTopology(const std::string& name) {
  for (const Topology& topology : Topologies()) {
    if (topology.name == name) return &topology;
  }
  return nullptr;
}

Network::Network(const Topology& topology, int size) : topology_(topology) {
  TFS_CHECK_GE(size, 1);
  TFS_CHECK_GE(topology.per_host, 1);
  const int hosts = (size + topology.per_host - 1) / topology.per_host;
  const int per_rack = topology.hosts_per_rack;
  const int racks = per_rack > 0 ? (hosts + per_rack - 1) / per_rack : 0;
  const double uplink = topology.nic_bandwidth * per_rack / topology.oversubscription;
  const auto receiving = [&](double bandwidth) { return topology.receivers_without_limit ? 0 : bandwidth; };
  port_out_ = AddLinks("port out", size, topology.port_bandwidth);
  port_in_ = AddLinks("port in", size, receiving(topology.port_bandwidth));
  bus_ = AddLinks("bus", hosts, topology.bus_bandwidth);
  nic_out_ = AddLinks("nic out", hosts, topology.nic_bandwidth);
  nic_in_ = AddLinks("nic in", hosts, receiving(topology.nic_bandwidth));
  rack_up_ = AddLinks("rack up", racks, uplink);
  rack_down_ = AddLinks("rack down", racks, receiving(uplink));
}

int Network::AddLinks(const std::string& name, int places, double bandwidth) {
  if (bandwidth <= 0) return -1;
  const int first = static_cast<int>(links_.size());
  for (int place = 0; place < places; ++place) {
    links_.push_back({name + " " + std::to_string(place), bandwidth});
  }
  return first;
}

Path Network::Between(int from, int to) const {
  Path path;
  const auto take = [&](int first, int place) {
    if (first >= 0) path.Add(first + place);
  };
  const int source = from / topology_.per_host;
  const int target = to / topology_.per_host;
  take(port_out_, from);
  take(bus_, source);
  if (source != target) {
    take(nic_out_, source);
    if (topology_.hosts_per_rack > 0) {
      const int source_rack = source / topology_.hosts_per_rack;
      const int target_rack = target / topology_.hosts_per_rack;
      if (source_rack != target_rack) {
        take(rack_up_, source_rack);
        take(rack_down_, target_rack);
      }
    }
    take(nic_in_, target);
    if (!topology_.receivers_without_limit) take(bus_, target);
  }
  take(port_in_, to);
  return path;
}

double Network::Latency(int from, int to) const {
  const int source = from / topology_.per_host;
  const int target = to / topology_.per_host;
  if (source == target) return topology_.host_latency;
  const int per_rack = topology_.hosts_per_rack;
  const bool same_rack = per_rack == 0 || source / per_rack == target / per_rack;
  return topology_.network_latency + (same_rack ? 0 : topology_.rack_latency);
}

}  // namespace tf_strategies::schedule

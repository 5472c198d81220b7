// The network of a cluster, for simulate.h: hosts with ranks, links with a bandwidth, and the path of each message.
//
//   rank --port--> [bus of the host] --NIC--> [rack's uplink] --> [rack's downlink] --NIC--> [bus] --port--> rank
//
// A message within a host uses only the ports and the bus. A message within a rack uses no uplink. Each direction of a
// port, a NIC and an uplink is a separate link (full duplex). A bus has one link for both directions. A bandwidth of 0
// means that there is no limit, and no link.
#ifndef OPS_ANALYSIS_TOPOLOGY_H_
#define OPS_ANALYSIS_TOPOLOGY_H_

#include <array>
#include <string>
#include <vector>

namespace tf_strategies::schedule {

// Bandwidths are in bytes per second. Latencies are in seconds for each message.
struct Topology {
  std::string name;
  int per_host = 1;                      // the ranks (GPUs) of a host; rank r is on host r / per_host
  double host_latency = 0;               // for messages within a host
  double port_bandwidth = 0;             // of a rank, in each direction
  double bus_bandwidth = 0;              // of a host, shared by all messages that begin or end there
  double network_latency = 0;            // for messages between hosts
  double nic_bandwidth = 0;              // of a host, in each direction
  int hosts_per_rack = 0;                // 0: one non-blocking switch for all hosts
  double rack_latency = 0;               // is added for messages between racks
  double oversubscription = 1;           // the NICs of a full rack divided by its uplink
  double gamma = 0;                      // seconds for each byte reduced; a rank adds one message at a time
  bool receivers_without_limit = false;  // no links on the receiver's side, as in the alpha-beta model
};

// The presets. "alpha_beta" is the model of Thakur, Rabenseifner and Gropp 2005, without any sharing.
const std::vector<Topology>& Topologies();

// Returns the preset with this name, or nullptr.
const Topology* FindTopology(const std::string& name);

// The links that a message uses, by number.
struct Path {
  std::array<int, 8> links{};
  int length = 0;
  void Add(int link) { links[length++] = link; }
};

struct Link {
  std::string
      name;  // "port out 3", "port in 3", "bus 0", "nic out 0", "nic in 0", "rack up 0", "rack down 0"
  double bandwidth = 0;
};

// A topology for a number of ranks.
class Network {
 public:
  // size: at least 1, as is per_host. The last host and the last rack may have fewer ranks; their links are like the
  // others.
  Network(const Topology& topology, int size);

  const std::vector<Link>& links() const { return links_; }
  Path Between(int from, int to) const;
  double Latency(int from, int to) const;

 private:
  // Adds a link for each of `places` places. Returns the number of the first, or -1 if the bandwidth is 0.
  int AddLinks(const std::string& name, int places, double bandwidth);

  const Topology topology_;
  std::vector<Link> links_;
  int port_out_, port_in_, bus_, nic_out_, nic_in_, rack_up_, rack_down_;
};

}  // namespace tf_strategies::schedule

#endif  // OPS_ANALYSIS_TOPOLOGY_H_

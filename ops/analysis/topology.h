// What a cluster's network looks like, for simulate.h: hosts with ranks on them, links with a bandwidth, and
// the links that a message takes.
//
//   rank --port--> [bus of the host] --NIC--> [rack's uplink] --> [rack's downlink] --NIC--> [bus] --port--> rank
//
// A message inside a host takes the ports and the bus alone; one inside a rack no uplink. Each way of a port,
// a NIC and an uplink is a link of its own (full duplex); a bus carries both ways together. A bandwidth of 0
// means that there is no such limit, hence no link.
#ifndef OPS_ANALYSIS_TOPOLOGY_H_
#define OPS_ANALYSIS_TOPOLOGY_H_

#include <array>
#include <string>
#include <vector>

namespace tf_strategies::schedule {

// Bandwidths in bytes a second, latencies in seconds a message.
struct Topology {
  std::string name;
  int per_host = 1;                      // ranks (GPUs) of a host; rank r is on host r / per_host
  double host_latency = 0;               // of a message inside a host
  double port_bandwidth = 0;             // of a rank, each way
  double bus_bandwidth = 0;              // of a host, shared by all messages that begin or end there
  double network_latency = 0;            // of a message between hosts
  double nic_bandwidth = 0;              // of a host, each way
  int hosts_per_rack = 0;                // 0: one switch that blocks nothing
  double rack_latency = 0;               // more, between racks
  double oversubscription = 1;           // a full rack's NICs over its uplink
  double gamma = 0;                      // seconds a byte reduced; a rank adds one message at a time
  bool receivers_without_limit = false;  // as the alpha-beta model has it: no link on the receiver's side
};

// The presets. "alpha_beta" is the model of Thakur, Rabenseifner and Gropp 2005, without any sharing.
const std::vector<Topology>& Topologies();

// Returns nullptr when no preset has that name.
const Topology* FindTopology(const std::string& name);

// The links that a message takes, by number.
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

// A topology over a number of ranks.
class Network {
 public:
  // size >= 1, per_host >= 1; the last host and the last rack may have fewer ranks, with links as the others.
  Network(const Topology& topology, int size);

  const std::vector<Link>& links() const { return links_; }
  Path Between(int from, int to) const;
  double Latency(int from, int to) const;

 private:
  // Adds a link for each of `places`; returns the number of the first, -1 without a bandwidth.
  int AddLinks(const std::string& name, int places, double bandwidth);

  const Topology topology_;
  std::vector<Link> links_;
  int port_out_, port_in_, bus_, nic_out_, nic_in_, rack_up_, rack_down_;
};

}  // namespace tf_strategies::schedule

#endif  // OPS_ANALYSIS_TOPOLOGY_H_

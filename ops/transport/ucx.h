// Transport over UCX: shared memory between processes of one host, TCP (or RDMA, where UCX finds it) between hosts.
#ifndef OPS_TRANSPORT_UCX_H_
#define OPS_TRANSPORT_UCX_H_

#include <memory>
#include <string>
#include <vector>

#include "ops/transport/transport.h"

namespace tf_strategies {

struct UcxOptions {
  std::string
      transports;  // UCX_TLS: "" for UCX's own choice, "tcp,self", ...; "sm" without "self" is tried before it is open
  std::string net_devices;  // UCX_NET_DEVICES: "" for all, "lo", "eth0", ...
};

struct UcxHandles;

// An opened UCX worker whose peers are not known yet: first the ranks learn each other's addresses, then Connect.
class UcxWorker {
 public:
  // At most this many bytes of a peer's address are accepted.
  static constexpr size_t kMaxAddressBytes = 64 << 10;

  static Status Open(const UcxOptions& options, std::unique_ptr<UcxWorker>* worker);
  ~UcxWorker();

  const std::string& address() const;  // opaque bytes
  bool shares_memory() const;          // whether its peers on this host may be reached without a network

  // Consumes the worker. addresses: one a rank, "" for a rank that UCX does not reach. same_host[r]: rank r shares this host: such endpoints use shared
  // memory and rely on the caller for failure detection; the others detect a lost peer by themselves.
  // Endpoints are made when first needed.
  static Status Connect(std::unique_ptr<UcxWorker> worker, int rank, std::vector<std::string> addresses,
                        std::vector<bool> same_host, std::unique_ptr<Transport>* transport);

 private:
  explicit UcxWorker(std::unique_ptr<UcxHandles> handles);
  std::unique_ptr<UcxHandles> handles_;
};

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_UCX_H_

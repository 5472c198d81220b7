// A transport over UCX: shared memory between processes of one host, and TCP or RDMA between hosts.
#ifndef OPS_TRANSPORT_UCX_H_
#define OPS_TRANSPORT_UCX_H_

#include <memory>
#include <string>
#include <vector>

#include "ops/transport/transport.h"

namespace tf_strategies {

struct UcxOptions {
  // The value of UCX_TLS: "" for UCX's own choice, "tcp,self", ... If it is "sm" without "self", Open checks that
  // shared memory works.
  std::string transports;
  // The value of UCX_NET_DEVICES: "" for all devices, "lo", "eth0", ...
  std::string net_devices;
};

struct UcxHandles;

// A UCX worker that is open and not yet connected. The ranks exchange their addresses before they call Connect.
class UcxWorker {
 public:
  // The limit for the address of a peer.
  static constexpr size_t kMaxAddressBytes = 64 << 10;

  static Status Open(const UcxOptions& options, std::unique_ptr<UcxWorker>* worker);
  ~UcxWorker();

  const std::string& address() const;  // opaque bytes
  bool shares_memory() const;          // whether peers on this host can be reached by shared memory

  // Makes a transport from the worker. Endpoints are made when they are first needed.
  //
  // addresses: [size], the addresses of all ranks; "" for a rank that UCX does not reach.
  // same_host: [size], true for the ranks on this host. Their endpoints use shared memory and do not detect a lost
  // peer, so the caller must do this. Other endpoints detect it.
  static Status Connect(std::unique_ptr<UcxWorker> worker, int rank, std::vector<std::string> addresses,
                        std::vector<bool> same_host, std::unique_ptr<Transport>* transport);

 private:
  explicit UcxWorker(std::unique_ptr<UcxHandles> handles);
  std::unique_ptr<UcxHandles> handles_;
};

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_UCX_H_

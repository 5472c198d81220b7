// The handles of an open UCX worker, and the conversion of UCX errors to a Status. Only for the UCX transport.
#ifndef OPS_TRANSPORT_UCX_HANDLES_H_
#define OPS_TRANSPORT_UCX_HANDLES_H_

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <vector>

#include "ops/base/status.h"
#include "ops/transport/transport.h"

namespace tf_strategies {

struct UcxHandles {
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  int event_fd = -1;
  std::string address;
  bool shares_memory = false;

  UcxHandles() = default;
  UcxHandles(const UcxHandles&) = delete;
  UcxHandles& operator=(const UcxHandles&) = delete;
  ~UcxHandles() {
    if (worker != nullptr) ucp_worker_destroy(worker);
    if (context != nullptr) ucp_cleanup(context);
  }
};

// Converts an error of UCX. The message begins with `what`, the operation that failed.
Status FromUcx(ucs_status_t status, const std::string& what);

// Returns the transport of a rank. addresses and same_host are those of UcxWorker::Connect.
std::unique_ptr<Transport> MakeUcxTransport(std::unique_ptr<UcxHandles> handles, int rank,
                                            std::vector<std::string> addresses, std::vector<bool> same_host);

}  // namespace tf_strategies

#define TFS_RETURN_IF_UCX_ERROR(call, what)                         \
  do {                                                              \
    const ucs_status_t ucx_status_ = (call);                        \
    if (ucx_status_ != UCS_OK) return FromUcx(ucx_status_, (what)); \
  } while (false)

#endif  // OPS_TRANSPORT_UCX_HANDLES_H_

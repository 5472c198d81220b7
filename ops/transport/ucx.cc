#include "ops/transport/ucx.h"

#include <cstdlib>
#include <utility>

#include "ops/base/check.h"
#include "ops/transport/sealed_address.h"
#include "ops/transport/transport_list.h"
#include "ops/transport/ucx_handles.h"

namespace tf_strategies {
namespace {

constexpr int kTrialRounds = 10000;

Status ModifyConfig(ucp_config_t* config, const char* name, const std::string& value) {
  if (value.empty()) return Status::Ok();
  const ucs_status_t status = ucp_config_modify(config, name, value.c_str());
  return status == UCS_OK ? Status::Ok()
                          : InvalidArgument(std::string("UCX refuses ") + name + "=" + value + ": " +
                                            ucs_status_string(status));
}

// Changes settings of UCX whose defaults were slow in measurements on one machine. Settings in the environment take
// precedence. A version of UCX that does not know a setting ignores it.
void Tune(ucp_config_t* config, const TransportList& transports) {
  const auto set = [&](const char* name, const char* value) {
    if (std::getenv((std::string("UCX_") + name).c_str()) == nullptr) ucp_config_modify(config, name, value);
  };
  const bool user_sets_segments =
      std::getenv("UCX_TCP_TX_SEG_SIZE") != nullptr || std::getenv("UCX_TCP_RX_SEG_SIZE") != nullptr;
  if (transports.HasTcp() && !user_sets_segments) {
    // The number of bytes that one system call moves. UCX's defaults are 8 KB to send and 64 KB to receive. An
    // all-reduce of 1 MB between two ranks took 0.3 ms with these values, and 0.7 ms with the defaults.
    set("TCP_TX_SEG_SIZE", "256k");
    set("TCP_RX_SEG_SIZE", "256k");
    // UCX stores a message that arrives before its reception in a buffer of the next larger of these sizes. If there is
    // none, the buffer has the size of a segment. UCX allocates 128 of these at once: 32 MB, which take 50 ms with huge
    // pages. None of these sizes may be the size of a segment, because UCX 1.22 crashes then.
    set("RX_MPOOL_SIZES", "64,1K,8K,32K,128K");
  }
  if (transports.SharesMemory()) {
    // In shared memory, messages of up to 64 KB need no handshake. An all-reduce of 64 KB between two ranks took 11 us
    // instead of 21 us.
    set("RNDV_THRESH", "intra:96k,inter:auto");
  } else if (transports.HasTcp()) {
    // Messages from 100 KB are received directly into their final place. 64 MB between two ranks took 32 ms instead of
    // 41 ms.
    set("RNDV_THRESH", "100k");
  }
}

Status OpenContext(const UcxOptions& options, const TransportList& transports, ucp_context_h* context) {
  ucp_config_t* config = nullptr;
  TFS_RETURN_IF_UCX_ERROR(ucp_config_read(nullptr, nullptr, &config), "reading the UCX configuration");
  Status modified = ModifyConfig(config, "TLS", options.transports);
  if (modified.ok()) modified = ModifyConfig(config, "NET_DEVICES", options.net_devices);
  Tune(config, transports);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  params.name = "tf_strategies";
  const ucs_status_t status = modified.ok() ? ucp_init(&params, config, context) : UCS_OK;
  ucp_config_release(config);
  TFS_RETURN_IF_ERROR(modified);
  TFS_RETURN_IF_UCX_ERROR(status, "opening UCX (transports \"" + options.transports + "\")");
  return Status::Ok();
}

// Checks that UCX can use shared memory, with a connection to this process itself. This is necessary because UCX opens
// successfully even if it has none of the requested transports.
Status CheckSharedMemory(const UcxHandles& handles, const ucp_address_t* address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  params.address = address;
  ucp_ep_h endpoint = nullptr;
  TFS_RETURN_IF_UCX_ERROR(ucp_ep_create(handles.worker, &params, &endpoint), "trying shared memory");
  ucp_request_param_t close{};
  void* request = ucp_ep_close_nbx(endpoint, &close);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) return Status::Ok();
  for (int round = 0; round < kTrialRounds && ucp_request_check_status(request) == UCS_INPROGRESS; ++round) {
    ucp_worker_progress(handles.worker);
  }
  ucp_request_free(request);
  return Status::Ok();
}

}  // namespace

Status FromUcx(ucs_status_t status, const std::string& what) {
  const std::string message = what + ": UCX says \"" + ucs_status_string(status) + "\"";
  switch (status) {
    case UCS_ERR_MESSAGE_TRUNCATED: return Mismatch(message);
    case UCS_ERR_CANCELED: return Cancelled(message);
    case UCS_ERR_IO_ERROR:
    case UCS_ERR_SHMEM_SEGMENT:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_REJECTED:
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_TIMED_OUT: return Unavailable(message);
    default: return Internal(message);
  }
}

UcxWorker::UcxWorker(std::unique_ptr<UcxHandles> handles) : handles_(std::move(handles)) {}
UcxWorker::~UcxWorker() = default;

const std::string& UcxWorker::address() const { return handles_->address; }
bool UcxWorker::shares_memory() const { return handles_->shares_memory; }

Status UcxWorker::Open(const UcxOptions& options, std::unique_ptr<UcxWorker>* worker) {
  const char* environment = std::getenv("UCX_TLS");
  const TransportList transports(options.transports.empty() && environment != nullptr ? environment
                                                                                      : options.transports);
  auto handles = std::make_unique<UcxHandles>();
  handles->shares_memory = transports.SharesMemory();
  TFS_RETURN_IF_ERROR(OpenContext(options, transports, &handles->context));
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  TFS_RETURN_IF_UCX_ERROR(ucp_worker_create(handles->context, &params, &handles->worker),
                          "opening a UCX worker");
  TFS_RETURN_IF_UCX_ERROR(ucp_worker_get_efd(handles->worker, &handles->event_fd),
                          "asking UCX for its event fd");
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  TFS_RETURN_IF_UCX_ERROR(ucp_worker_get_address(handles->worker, &address, &bytes),
                          "asking UCX for its address");
  handles->address = SealAddress(std::string(reinterpret_cast<const char*>(address), bytes));
  const bool memory_alone = transports.SharesMemory() && !transports.HasTcp() && !transports.HasSelf();
  const Status reached = memory_alone ? CheckSharedMemory(*handles, address) : Status::Ok();
  ucp_worker_release_address(handles->worker, address);
  TFS_RETURN_IF_ERROR(reached);
  worker->reset(new UcxWorker(std::move(handles)));
  return Status::Ok();
}

Status UcxWorker::Connect(std::unique_ptr<UcxWorker> worker, int rank, std::vector<std::string> addresses,
                          std::vector<bool> same_host, std::unique_ptr<Transport>* transport) {
  const int size = static_cast<int>(addresses.size());
  if (rank < 0 || rank >= size) {
    return InvalidArgument("rank " + std::to_string(rank) + " is not in a group of " + std::to_string(size));
  }
  if (size > (1 << kSourceBits)) {
    return InvalidArgument("a group has at most " + std::to_string(1 << kSourceBits) + " ranks, not " +
                           std::to_string(size));
  }
  TFS_CHECK_EQ(same_host.size(), addresses.size());
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank || addresses[peer].empty()) continue;
    const std::string whose = "the UCX address of rank " + std::to_string(peer);
    if (addresses[peer].size() > kMaxAddressBytes) {
      return InvalidArgument(whose + " has " + std::to_string(addresses[peer].size()) + " bytes");
    }
    std::string address;
    const Status whole = UnsealAddress(addresses[peer], &address);
    if (!whole.ok()) return InvalidArgument(whose + " is damaged: " + whole.message());
    addresses[peer] = std::move(address);
  }
  *transport =
      MakeUcxTransport(std::move(worker->handles_), rank, std::move(addresses), std::move(same_host));
  return Status::Ok();
}

}  // namespace tf_strategies

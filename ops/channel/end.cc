#include "ops/channel/end.h"

#include <unistd.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include "ops/channel/offered_sockets.h"
#include "ops/channel/registry.h"
#include "ops/transport/tcp/tcp_transport.h"

namespace tf_strategies {
namespace {

constexpr size_t kMostTransports = 8;
constexpr std::chrono::seconds kDataConnectionTime{10};
constexpr std::chrono::seconds kUnusedConnectionTime{1};

struct Prepared {
  std::mutex mutex;
  std::optional<Acceptance> acceptance;
};

Prepared& ThePrepared() {
  static Prepared* prepared = new Prepared;
  return *prepared;
}

Status Get(Acceptance* acceptance) {
  Prepared& prepared = ThePrepared();
  std::lock_guard<std::mutex> lock(prepared.mutex);
  if (!prepared.acceptance.has_value()) {
    return FailedPrecondition("this process accepts no channels: it must call channel.prepare() first");
  }
  *acceptance = *prepared.acceptance;
  return Status::Ok();
}

// A worker that connects again does not need its failed channels.
void CloseEndedChannelsTo(const std::string& worker) {
  for (const int64_t id : ChannelsTo(worker)) {
    const auto channel = FindChannel(id);
    if (channel != nullptr && !channel->status().ok()) CloseChannel(id);
  }
}

// Closes the data connection of a worker that shares memory with this process.
void CloseUnused(const std::string& token) {
  int socket = -1;
  if (TakeSocket(token, kUnusedConnectionTime, &socket).ok()) close(socket);
}

}  // namespace

Status OpenEnd(const std::vector<std::string>& transports, const std::string& net_devices,
               std::unique_ptr<UcxWorker>* end) {
  if (transports.empty() || transports.size() > kMostTransports) {
    return InvalidArgument("1 to " + std::to_string(kMostTransports) + " values of UCX_TLS are tried, not " +
                           std::to_string(transports.size()));
  }
  Status first;
  for (const std::string& each : transports) {
    const Status opened = UcxWorker::Open({each, net_devices}, end);
    if (opened.ok()) return opened;
    if (first.ok()) first = opened;
  }
  return first;
}

Status ConnectEnd(std::unique_ptr<UcxWorker> end, Side side, const std::string& peer_address, bool same_host,
                  Names names, std::shared_ptr<Channel>* channel) {
  if (peer_address.empty()) return InvalidArgument("the address of " + names.peer + " is empty");
  const int rank = static_cast<int>(side);
  std::vector<std::string> addresses(2);
  addresses[rank] = end->address();
  addresses[1 - rank] = peer_address;
  std::unique_ptr<Transport> transport;
  TFS_RETURN_IF_ERROR(
      UcxWorker::Connect(std::move(end), rank, std::move(addresses), {same_host, same_host}, &transport));
  *channel = std::make_shared<Channel>(std::move(transport), std::move(names.mine), std::move(names.peer));
  return Status::Ok();
}

Status ConnectSocket(int socket, Side side, const std::string& tls_folder, Names names,
                     std::shared_ptr<Channel>* channel) {
  const int rank = static_cast<int>(side);
  std::vector<int> sockets(2, -1);
  sockets[1 - rank] = socket;
  TcpTls tls;
  tls.folder = tls_folder;
  std::unique_ptr<Transport> transport;
  TFS_RETURN_IF_ERROR(MakeTcpTransport(rank, std::move(sockets), tls, &transport));
  *channel = std::make_shared<Channel>(std::move(transport), std::move(names.mine), std::move(names.peer));
  return Status::Ok();
}

void PrepareToAccept(Acceptance acceptance) {
  Prepared& prepared = ThePrepared();
  std::lock_guard<std::mutex> lock(prepared.mutex);
  prepared.acceptance = std::move(acceptance);
}

Status Accept(const Request& request, Names names, Accepted* accepted) {
  Acceptance here;
  TFS_RETURN_IF_ERROR(Get(&here));
  CloseEndedChannelsTo(names.peer);
  std::shared_ptr<Channel> channel;
  accepted->same_host = request.host == here.host && !request.transports.empty();
  if (!accepted->same_host && !request.token.empty()) {
    int socket = -1;
    TFS_RETURN_IF_ERROR(TakeSocket(request.token, kDataConnectionTime, &socket));
    TFS_RETURN_IF_ERROR(ConnectSocket(socket, Side::kServer, here.tls_folder, std::move(names), &channel));
  } else {
    if (!request.token.empty()) CloseUnused(request.token);
    std::unique_ptr<UcxWorker> end;
    TFS_RETURN_IF_ERROR(OpenEnd(request.transports, here.net_devices, &end));
    accepted->address = end->address();
    TFS_RETURN_IF_ERROR(ConnectEnd(std::move(end), Side::kServer, request.address, accepted->same_host,
                                   std::move(names), &channel));
  }
  accepted->channel = RegisterChannel(std::move(channel));
  return Status::Ok();
}

}  // namespace tf_strategies

// Opens channels: each process opens an end, gets the address of the other end through TensorFlow's runtime,
// and connects.
#ifndef OPS_CHANNEL_END_H_
#define OPS_CHANNEL_END_H_

#include <memory>
#include <string>
#include <vector>

#include "ops/base/status.h"
#include "ops/channel/channel.h"
#include "ops/transport/ucx.h"

namespace tf_strategies {

// The two ranks of the transport.
enum class Side { kWorker = 0, kServer = 1 };

// Opens an end with the first transport that works.
//
// transports: the values of UCX_TLS to try, in this order; at least one.
// net_devices: the value of UCX_NET_DEVICES, or "" for all devices.
Status OpenEnd(const std::vector<std::string>& transports, const std::string& net_devices,
               std::unique_ptr<UcxWorker>* end);

struct Names {
  std::string mine;  // for messages: "worker 0 (10.0.0.2:2222)"
  std::string peer;
};

// Makes a channel from an end.
//
// same_host: whether the other end is on this host. Such a channel does not notice that its peer has died, so a failure
// detector must call Channel::Fail.
Status ConnectEnd(std::unique_ptr<UcxWorker> end, Side side, const std::string& peer_address, bool same_host,
                  Names names, std::shared_ptr<Channel>* channel);

// Makes a channel of a connection that exists, which it takes over, also on failure.
//
// tls_folder: as for TcpTls.
Status ConnectSocket(int socket, Side side, const std::string& tls_folder, Names names,
                     std::shared_ptr<Channel>* channel);

// The settings with which this process accepts channels from workers.
struct Acceptance {
  std::string host;         // equal on two processes exactly when they can share memory
  std::string net_devices;  // as for OpenEnd
  std::string tls_folder;   // as for ConnectSocket
};

// Lets this process accept channels. Before this call, Accept fails. Thread-safe.
void PrepareToAccept(Acceptance acceptance);

struct Accepted {
  int64_t channel = 0;  // its id in the registry of this process
  std::string address;
  bool same_host = false;
};

// What a worker says when it opens a channel.
struct Request {
  std::vector<std::string> transports;  // as for OpenEnd
  std::string address;                  // of the worker's end
  std::string host;                     // as in Acceptance
  std::string token;                    // of its data connection (OfferSocket); "" if it has none
};

// Opens an end for a worker, connects it, and registers the channel. It also closes failed channels to this worker.
//
// The channel uses the worker's data connection, if there is one and the two cannot share memory.
Status Accept(const Request& request, Names names, Accepted* accepted);

}  // namespace tf_strategies

#endif  // OPS_CHANNEL_END_H_

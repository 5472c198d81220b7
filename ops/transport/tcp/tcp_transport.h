// Transport over TCP connections that exist: whoever makes them, makes sure of who is at the other end.
//
// A connection to each peer carries frames (frame.h) in both directions. Long messages are read into their places.
#ifndef OPS_TRANSPORT_TCP_TCP_TRANSPORT_H_
#define OPS_TRANSPORT_TCP_TCP_TRANSPORT_H_

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/base/status.h"
#include "ops/transport/transport.h"

namespace tf_strategies {

// How connections are encrypted.
struct TcpTls {
  std::string folder;  // with ca.crt, task.crt and task.key; "": connections are not encrypted
  std::chrono::milliseconds handshake_time{10000};
};

// sockets: by rank, connected stream sockets; -1 for this rank itself, and for ranks that this transport does not reach. They are
// taken over, also when this fails. With TLS the lower rank of a connection is the server of its handshake, which Progress drives.
// A connection whose other end is not known to the authority is lost.
Status MakeTcpTransport(int rank, std::vector<int> sockets, const TcpTls& tls,
                        std::unique_ptr<Transport>* transport);

inline Status MakeTcpTransport(int rank, std::vector<int> sockets, std::unique_ptr<Transport>* transport) {
  return MakeTcpTransport(rank, std::move(sockets), TcpTls(), transport);
}

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_TCP_TCP_TRANSPORT_H_

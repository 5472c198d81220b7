// The bytes of a connection as they are.
#ifndef OPS_TRANSPORT_TCP_PLAIN_STREAM_H_
#define OPS_TRANSPORT_TCP_PLAIN_STREAM_H_

#include "ops/transport/tcp/stream.h"

namespace tf_strategies::tcp {

class PlainStream final : public Stream {
 public:
  // The caller owns the socket, which must outlive this.
  explicit PlainStream(int socket) : socket_(socket) {}

  Status Read(const iovec* parts, int count, size_t* bytes) override;
  Status Write(const iovec* parts, int count, size_t* bytes) override;

 private:
  const int socket_;
};

}  // namespace tf_strategies::tcp

#endif  // OPS_TRANSPORT_TCP_PLAIN_STREAM_H_

// The bytes of one connection, in both directions: plain (plain_stream.h), or encrypted by TLS (tls_stream.h). Nothing blocks.
#ifndef OPS_TRANSPORT_TCP_STREAM_H_
#define OPS_TRANSPORT_TCP_STREAM_H_

#include <sys/uio.h>

#include <cstddef>

#include "ops/base/status.h"

namespace tf_strategies::tcp {

class Stream {
 public:
  virtual ~Stream() = default;

  // Reads into the parts, in order. Sets *bytes to the number of bytes read: 0 if there are none now. An error is that of the
  // connection, which is of no use afterwards.
  virtual Status Read(const iovec* parts, int count, size_t* bytes) = 0;

  // Writes from the parts, in order. Sets *bytes to the number of bytes taken: fewer than there are if there is no room now.
  virtual Status Write(const iovec* parts, int count, size_t* bytes) = 0;

  // Returns whether Read may find bytes that the socket does not announce.
  virtual bool HasInput() const { return false; }

  // Returns whether bytes that Write has taken wait for the socket. Write without parts sends them.
  virtual bool HasOutput() const { return false; }

  // Returns whether a write goes on when the socket takes more, after one that took less than there was.
  virtual bool WaitsForOutput() const { return true; }

  // Returns whether both ends know one another. Read and Write drive the handshake until then.
  virtual bool Established() const { return true; }

  // Returns an error if the handshake has not ended in time.
  virtual Status CheckDeadline() { return Status::Ok(); }
};

}  // namespace tf_strategies::tcp

#endif  // OPS_TRANSPORT_TCP_STREAM_H_

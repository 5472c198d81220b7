#include "ops/transport/tcp/plain_stream.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace tf_strategies::tcp {
namespace {

// Calls recvmsg or sendmsg. Returns the bytes, or -1 with errno.
template <typename Call>
ssize_t Move(Call call, int socket, const iovec* parts, int count, int flags) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = static_cast<size_t>(count);
  for (;;) {
    const ssize_t moved = call(socket, &message, flags);
    if (moved >= 0 || errno != EINTR) return moved;
  }
}

bool NotNow() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

Status PlainStream::Read(const iovec* parts, int count, size_t* bytes) {
  const ssize_t got = Move(recvmsg, socket_, parts, count, MSG_DONTWAIT);
  *bytes = got > 0 ? static_cast<size_t>(got) : 0;
  if (got == 0) return Unavailable("it was closed by the peer");
  return got > 0 || NotNow() ? Status::Ok() : Unavailable(std::strerror(errno));
}

Status PlainStream::Write(const iovec* parts, int count, size_t* bytes) {
  *bytes = 0;
  if (count == 0) return Status::Ok();
  const ssize_t sent = Move(sendmsg, socket_, parts, count, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) *bytes = static_cast<size_t>(sent);
  return sent >= 0 || NotNow() ? Status::Ok() : Unavailable(std::strerror(errno));
}

}  // namespace tf_strategies::tcp

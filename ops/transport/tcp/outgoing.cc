#include "ops/transport/tcp/outgoing.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace tf_strategies::tcp {
namespace {

constexpr int kMostParts = 64;  // of one system call
constexpr size_t kMostBytesAtOnce = size_t{4} << 20;

}  // namespace

void Outgoing::Add(const FrameHead& head, const void* data, Transport::SendDone done) {
  frames_.push_back({head, static_cast<const char*>(data), std::move(done)});
}

Status Outgoing::Write(int socket, bool* moved) {
  blocked_ = false;
  size_t written_now = 0;
  while (!frames_.empty() && written_now < kMostBytesAtOnce) {
    iovec parts[kMostParts];
    int count = 0;
    size_t skip = written_, total = 0;
    for (Frame& frame : frames_) {
      if (count + 2 > kMostParts) break;
      const auto add = [&](const void* from, size_t bytes) {
        if (skip >= bytes) {
          skip -= bytes;
          return;
        }
        parts[count++] = {const_cast<char*>(static_cast<const char*>(from)) + skip, bytes - skip};
        total += bytes - skip;
        skip = 0;
      };
      add(&frame.head, sizeof(FrameHead));
      if (frame.data != nullptr) add(frame.data, frame.head.bytes);
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return Unavailable(std::strerror(errno));
      blocked_ = true;
      return Status::Ok();
    }
    *moved = true;
    written_now += static_cast<size_t>(sent);
    blocked_ = static_cast<size_t>(sent) < total;
    Advance(static_cast<size_t>(sent));
    if (blocked_) return Status::Ok();
  }
  return Status::Ok();
}

void Outgoing::Advance(size_t written) {
  written_ += written;
  while (!frames_.empty() && written_ >= frames_.front().bytes()) {
    written_ -= frames_.front().bytes();
    const Transport::SendDone done = std::move(frames_.front().done);
    frames_.pop_front();
    if (done) done(Status::Ok());
  }
}

void Outgoing::Fail(const Status& status) {
  std::deque<Frame> frames;
  frames.swap(frames_);
  written_ = 0;
  blocked_ = false;
  for (Frame& frame : frames) {
    if (frame.done) frame.done(status);
  }
}

}  // namespace tf_strategies::tcp
